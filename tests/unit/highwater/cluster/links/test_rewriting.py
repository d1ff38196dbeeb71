"""Addresses in answers: every place of every version is found and replaced, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from highwater.cluster.links.rewriting import must_be_read, places, rewritten
from highwater.kafka.wire import messages
from highwater.kafka.wire.codec import UnknownApi, decode_response, encode_response, response_class
from highwater.kafka.wire.header import API_VERSIONS, APIS, is_flexible

FIRST = {
    "Produce": 10, "Fetch": 16, "Metadata": 0, "FindCoordinator": 0, "DescribeCluster": 0,
    "DescribeQuorum": 2, "ShareFetch": 0, "ShareAcknowledge": 0,
}  # fmt: skip
"""From which version on an answer has addresses (KIP-951, KIP-853, KIP-932)."""
OWN, PROXY = ("kafka.example", 9092), ("127.0.0.1", 21092)


def versions(api_key: int) -> range:
    try:
        return range(response_class(api_key).max_version + 1)
    except UnknownApi:
        return range(0)


def test_the_schemas_name_the_answers_with_addresses() -> None:
    first: dict[str, int] = {}
    for key, (name, _) in APIS.items():
        for version in versions(key):
            if places(key, version):
                first.setdefault(name, version)
    assert first == FIRST


def frame(key: int, version: int, answer: Any) -> bytes:
    tags = b"\0" if is_flexible(key, version) and key != API_VERSIONS else b""
    return b"\0\0\0\7" + tags + bytes(encode_response(answer, version))


def filled(key: int, version: int) -> Any:
    """An answer with one address at each place."""
    answer = response_class(key)()

    def fill(struct: Any, fields: Any, way: tuple[str, ...]) -> None:
        if not way:
            struct.host, struct.port = OWN
            return
        field = fields[way[0]]
        item = field.type_class() if hasattr(field, "type_class") else None
        if item is None:
            name = field.type_str.removeprefix("[]")
            item = getattr(type(struct), name)()
        setattr(struct, way[0], [item])
        fill(item, field.fields, way[1:])

    for way in places(key, version):
        fill(answer, response_class(key)._struct.fields, way)
    return answer


CASES = [
    (key, version)
    for key, (name, _) in APIS.items()
    if name in FIRST
    for version in range(FIRST[name], response_class(key).max_version + 1)
]


@pytest.mark.parametrize(("key", "version"), CASES)
def test_each_version_names_the_proxy_and_nothing_else_changes(key: int, version: int) -> None:
    before = frame(key, version, filled(key, version))
    assert must_be_read(key, version)
    after = rewritten(key, version, before, lambda number, own: PROXY if own == OWN else own)
    assert b"kafka.example" in before
    assert b"kafka.example" not in after
    back = rewritten(key, version, after, lambda number, own: OWN)
    assert back == before


def test_an_answer_without_an_address_stays_as_it_is() -> None:
    answer = messages.FindCoordinatorResponse(error_code=15, node_id=-1, host="", port=-1)
    same = frame(10, 2, answer)
    assert rewritten(10, 2, same, lambda number, own: PROXY) == same


def test_a_client_is_told_of_no_version_that_could_not_be_read() -> None:
    one = messages.ApiVersionsResponse.ApiVersion
    told = messages.ApiVersionsResponse(
        api_keys=[
            one(api_key=3, min_version=0, max_version=99),
            one(api_key=11, min_version=0, max_version=99),
            one(api_key=88, min_version=0, max_version=0),
        ]
    )
    raw = rewritten(18, 0, frame(18, 0, told), lambda number, own: own)
    left = {a.api_key: a.max_version for a in decode_response(18, 0, raw[4:]).api_keys}
    known = messages.MetadataResponse.max_version
    assert left == {3: known, 11: 99}, "88 is StreamsGroupHeartbeat, unread"
