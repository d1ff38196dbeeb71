"""Headers by hand against kafka-python's own."""

from __future__ import annotations

import pytest
from kafka.protocol.api_header import RequestHeader as TheirHeader

from highwater.kafka.wire import codec, header


@pytest.mark.parametrize("client_id", [None, "", "producer-1", "höhe"])
@pytest.mark.parametrize(
    ("api_key", "version"), [(3, 1), (3, 12), (18, 0), (18, 3), (0, 7), (0, 9)]
)
def test_request_header_is_what_kafka_python_writes(
    api_key: int, version: int, client_id: str | None
) -> None:
    ours = header.request_header(api_key, version, 77, client_id)
    theirs = TheirHeader(
        request_api_key=api_key,
        request_api_version=version,
        correlation_id=77,
        client_id=client_id,
    ).encode(flexible=header.is_flexible(api_key, version))
    assert ours == theirs
    parsed = header.parse_request_header(memoryview(ours + b"body"))
    assert parsed == (api_key, version, 77, client_id, len(ours))


def test_tagged_fields_in_a_request_header_are_passed_over() -> None:
    plain = header.request_header(3, 9, 5, "c")[:-1]
    tagged = plain + b"\x02" + b"\x00\x03abc" + b"\x81\x01\x00" + b"body"
    assert header.parse_request_header(tagged).body_position == len(tagged) - 4


def test_controlled_shutdown_v0_has_no_client_id() -> None:
    bytes_ = header.request_header(7, 0, 5, "ignored") + b"\0\0\0\x01"
    assert header.parse_request_header(bytes_) == (7, 0, 5, None, 8)
    assert header.parse_request_header(bytes_[:8]) == (7, 0, 5, None, 8)


@pytest.mark.parametrize(
    "garbage",
    [
        b"", b"GET / HT", b"\0\x03\0\x01\0\0\0\x01\x7f\xff" + b"x" * 20,
        b"\0\x03\0\x09\0\0\0\x01\0\x01c\xff\xff\xff\xff\xff\xff", b"\0\x03\0\x09\0\0\0\x01\0\x01c",
        b"\0\x03\0\x09\0\0\0\x01\0\x01c\x01\x00\x7f",
    ],
)  # fmt: skip
def test_garbage_is_refused(garbage: bytes) -> None:
    with pytest.raises(header.BadHeader):
        header.parse_request_header(memoryview(garbage))


def test_text_that_is_not_utf8_is_read_as_java_reads_it() -> None:
    parsed = header.parse_request_header(b"\0\x03\0\x01\0\0\0\x01\0\x02\xff\xfe")
    assert parsed.client_id == "\ufffd\ufffd"
    topics = b"\0\0\0\1\0\2\xc3("  # Metadata v1
    assert codec.decode_request(3, 1, topics).topics[0].name == "\ufffd("


def test_answer_to_api_versions_has_a_plain_header_at_every_version() -> None:
    assert header.response_header(18, 3, 9) == b"\0\0\0\x09"
    assert header.response_header(3, 9, 9) == b"\0\0\0\x09\0"
    assert header.response_body_position(3, 9, b"\0\0\0\x09\x01\x05\x02abBODY") == 9
    assert header.response_body_position(18, 3, b"\0\0\0\x09") == 4


def test_flexible_versions_agree_with_the_codecs() -> None:
    checked = 0
    for key in header.APIS:
        try:
            cls = codec.request_class(key)
        except codec.UnknownApi:
            continue
        for version in range(cls.max_version + 1):
            assert cls.flexible_version_q(version) == header.is_flexible(key, version)
            checked += 1
    assert checked > 150
