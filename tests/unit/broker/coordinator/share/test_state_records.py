"""The records of __share_group_state against bytes of Apache Kafka 4.2's own classes."""

from __future__ import annotations

import pytest

from highwater.broker.coordinator.share.records import (
    BadRecordError,
    Snapshot,
    StateRecord,
    Update,
    decode,
    encode,
)
from highwater.broker.share.persister import SharePartitionKey, StateBatch

KEY = SharePartitionKey("grüppe", (1).to_bytes(8, "big") + (2).to_bytes(8, "big"), 6)
BATCHES = (StateBatch(5, 9, 2, 1), StateBatch(12, 12, 0, 3))
NAMED = "00076772c3bc7070650000000000000001000000000000000200000006"
TOLD = "030000000000000005000000000000000902000100000000000000000c000000000000000c00000300"
STAMPED = "00000000000000080000000000000009"


@pytest.mark.parametrize(
    ("record", "key", "value"),
    [
        (Snapshot(1, 2, 3, 4, 7, BATCHES, 8, 9), "0000" + NAMED,
         "0000000000010000000200000003" + "0000000000000004" + STAMPED + TOLD + "01000400000007"),
        (Snapshot(1, 2, 3, 4, -1, BATCHES, 8, 9), "0000" + NAMED,
         "0000000000010000000200000003" + "0000000000000004" + STAMPED + TOLD + "00"),
        (Update(1, 3, 4, 7, BATCHES), "0001" + NAMED,
         "00000000000100000003" + "0000000000000004" + TOLD + "01000400000007"),
        (Update(1, 3, 4, -1, BATCHES), "0001" + NAMED,
         "00000000000100000003" + "0000000000000004" + TOLD + "00"),
        (None, "0000" + NAMED, None),
    ],
)  # fmt: skip
def test_kafkas_bytes(record: Snapshot | Update | None, key: str, value: str | None) -> None:
    data = bytes.fromhex(key), None if value is None else bytes.fromhex(value)
    assert encode(StateRecord(KEY, record)) == data
    assert decode(*data) == StateRecord(KEY, record)


def test_what_is_no_record() -> None:
    key, value = encode(StateRecord(KEY, Update(1, 3, 4, 7, BATCHES)))
    assert decode(b"\0\7" + key[2:], value) is None
    assert decode(key, None) is None, "an update is never deleted alone"
    for broken in (b"\0\1" + value[2:], value[:20], b""):  # type: ignore[index]
        with pytest.raises(BadRecordError):
            decode(key, broken)
    with pytest.raises(BadRecordError):
        decode(None, value)
