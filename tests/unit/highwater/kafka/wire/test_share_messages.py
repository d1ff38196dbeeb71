"""The messages of share groups against bytes that Apache Kafka 4.2's own classes wrote.

`share_messages.txt` has one message a line: API key, side, version, body.  Each field has a value
of its own, so that two that changed places would be seen.
"""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from highwater.kafka.wire import codec
from highwater.kafka.wire.header import APIS, is_flexible
from highwater.kafka.wire.messages import ShareFetchRequest

LINES = (Path(__file__).parent / "share_messages.txt").read_text().splitlines()
BODIES = {
    (int(key), side, int(version)): bytes.fromhex(body)
    for key, side, version, body in (line.split() for line in LINES)
}


@pytest.mark.parametrize("which", sorted(BODIES), ids=lambda which: "-".join(map(str, which)))
def test_kafkas_bytes_there_and_back(which: tuple[int, str, int]) -> None:
    key, side, version = which
    decode, encode = (
        (codec.decode_request, codec.encode_request)
        if side == "request"
        else (codec.decode_response, codec.encode_response)
    )
    message = decode(key, version, BODIES[which])
    message._header = None  # what is read has none
    assert bytes(encode(message, version)) == BODIES[which]
    assert is_flexible(key, version)


def test_each_api_is_here() -> None:
    assert {key for key, _, _ in BODIES} == {key for key in APIS if key >= 76}


def test_fields_are_where_kafka_has_them() -> None:
    fetch = codec.decode_request(78, 2, BODIES[78, "request", 2])
    assert isinstance(fetch, ShareFetchRequest)
    assert (fetch.group_id, fetch.share_session_epoch, fetch.batch_size) == ("s1", 3, 8)
    assert fetch.topics[0].topic_id == UUID(int=(10 << 64) + 11)
    batch = fetch.topics[0].partitions[0].acknowledgement_batches[0]
    assert (batch.last_offset - batch.first_offset, batch.acknowledge_types) == (1, [15, 16])
