"""A client as its requests show it, without a network."""

from __future__ import annotations

import itertools
import struct

import pytest

from highwater.doctor.client_findings import Effect
from highwater.doctor.client_watch import connection_findings, findings_of
from highwater.doctor.seen import Seen
from highwater.kafka.wire import messages
from highwater.kafka.wire.codec import encode_request, encode_response
from highwater.kafka.wire.header import parse_request_header, request_header

CONNECTIONS = itertools.count(1)
HELLO = bytes.fromhex("1603010200010001fc0303")


def seen_of(*requests: tuple[int, int, bytes], client: str = "c") -> Seen:
    """After these requests, (API, version, body), on one connection."""
    seen = Seen(lambda _: None)
    number = next(CONNECTIONS)
    seen.begun(number, "broker-1", b"\0\0\0\x10")
    for key, version, body in requests:
        header = parse_request_header(request_header(key, version, 1, client))
        seen.asked(number, header, memoryview(body), whole=True)
    return seen


def software(name: str) -> tuple[int, int, bytes]:
    request = messages.ApiVersionsRequest(client_software_name=name, client_software_version="1.0")
    return 18, 3, bytes(encode_request(request, 3))


def produce(acks: int, producer_id: int, version: int, codec: int = 0) -> tuple[int, int, bytes]:
    batch = struct.pack(">qiibIhiqqqhii", 0, 49, 0, 2, 0, codec, 0, 0, 0, producer_id, 0, 0, 0)
    if version >= 9:
        topic = b"\x02\x02t\x02" + struct.pack(">i", 0) + bytes([len(batch) + 1])
        return 0, version, b"\0" + struct.pack(">hi", acks, 30000) + topic + batch
    topic = struct.pack(">ih1siii", 1, 1, b"t", 1, 0, len(batch))
    return 0, version, struct.pack(">hhi", -1, acks, 30000) + topic + batch


@pytest.mark.parametrize("version", [3, 8, 9, 11])
def test_a_producer_is_known_by_its_batches(version: int) -> None:
    seen = seen_of(software("librdkafka"), produce(1, -1, version, codec=4))
    (client,) = seen.clients.values()
    assert client.software == "librdkafka 1.0"
    assert client.settings["acks"] == ["1"]
    assert client.settings["enable.idempotence"] == ["false"]
    assert client.settings["compression.type"] == ["zstd"]
    assert {f.effect for f in findings_of(client)} == {Effect.LOSES, Effect.REPEATS}


def test_a_sound_producer_has_no_finding() -> None:
    seen = seen_of(software("apache-kafka-java"), produce(-1, 7, 9))
    (client,) = seen.clients.values()
    assert client.settings["acks"] == ["all"]
    assert findings_of(client) == []


def test_what_was_not_seen_is_not_judged() -> None:
    (client,) = seen_of(software("librdkafka"), (0, 9, b"\0\xff\xff")).clients.values()
    assert findings_of(client) == []


def test_two_values_of_one_setting_are_both_judged() -> None:
    seen = seen_of(produce(-1, 7, 9), produce(0, 7, 9))
    (client,) = seen.clients.values()
    assert client.settings["acks"] == ["all", "0"]
    assert "acks=0" in {f.what for f in findings_of(client)}


def test_a_version_that_the_brokers_do_not_know_is_told() -> None:
    seen = seen_of(software("old"))
    api = messages.ApiVersionsResponse.ApiVersion(api_key=0, min_version=3, max_version=10)
    answer = messages.ApiVersionsResponse(error_code=0, api_keys=[api], throttle_time_ms=0)
    body = memoryview(bytes(encode_response(answer, 3)))
    number = next(CONNECTIONS)
    seen.begun(number, "broker-1", b"")
    seen.answered(number, 18, 3, body, whole=True)
    header = parse_request_header(request_header(0, 2, 1, "old"))
    seen.asked(number, header, memoryview(b""), whole=True)
    client = seen.clients["old", ""]
    (finding,) = findings_of(client)
    assert (finding.effect, finding.what) == (Effect.REFUSED, "Produce")
    assert finding.why == "It asks for version 2, and the brokers know 3 to 10."


@pytest.mark.parametrize(
    ("first", "tls_listener", "why"),
    [
        (HELLO, False, "The client speaks TLS, and the listener does not."),
        (b"\0\0\0\x10", True, "The listener speaks TLS, and the client does not."),
        (
            HELLO,
            True,
            "What goes through TLS cannot be seen, and addresses in it are not replaced.",
        ),
    ],
)
def test_tls_on_one_side_alone(first: bytes, tls_listener: bool, why: str) -> None:
    seen = Seen(lambda _: None)
    seen.begun(1, "broker-1", first)
    assert [f.why for f in connection_findings(seen, tls_listener)] == [why]


def test_a_broker_that_hangs_up_without_an_answer_is_told() -> None:
    seen = seen_of(software("librdkafka"))
    (number,) = seen._open
    seen.hung_up(number)
    seen.ended(number)
    (finding,) = connection_findings(seen, tls_listener=False)
    assert "hangs up without an answer (1 times)" in finding.why


def test_a_client_that_leaves_before_its_answer_is_no_finding() -> None:
    seen = seen_of(software("librdkafka"))
    (number,) = seen._open
    seen.ended(number)
    assert not list(connection_findings(seen, tls_listener=False))


def test_an_unknown_topic_is_told_until_it_is_there() -> None:
    seen = seen_of(software("librdkafka"))
    (number,) = seen._open
    (client,) = seen.clients.values()
    for code, effects in ((3, [Effect.UNUSABLE]), (0, [])):
        topic = messages.MetadataResponse.MetadataResponseTopic(
            error_code=code, name="orders", is_internal=False, partitions=[]
        )
        answer = messages.MetadataResponse(brokers=[], controller_id=1, topics=[topic])
        body = memoryview(bytes(encode_response(answer, 4)))
        seen.answered(number, 3, 4, body, whole=True)
        assert [f.effect for f in findings_of(client)] == effects


def test_what_the_coordinator_refuses_is_told_and_what_passes_is_not() -> None:
    seen = seen_of(software("librdkafka"))
    (number,) = seen._open
    (client,) = seen.clients.values()
    for code, effects in ((26, [Effect.REFUSED]), (79, [Effect.REFUSED])):
        answer = messages.JoinGroupResponse(
            throttle_time_ms=0, error_code=code, generation_id=-1, protocol_name="", leader="",
            member_id="", members=[],
        )  # fmt: skip
        body = memoryview(bytes(encode_response(answer, 4)))
        seen.answered(number, 11, 4, body, whole=True)
        assert [f.effect for f in findings_of(client)] == effects, code
    assert "INVALID_SESSION_TIMEOUT" in findings_of(client)[0].why


def test_a_broker_that_cannot_be_reached_is_told() -> None:
    seen = Seen(lambda _: None)
    seen.unreachable(1, "broker-2", "nothing listens on broker-2:9092")
    (finding,) = connection_findings(seen, tls_listener=False)
    assert (finding.effect, finding.what) == (Effect.UNREACHABLE, "broker-2")
