"""Idempotence and transactions in one partition's log, for its leader and followers."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from highwater.broker.log.log import Log
from highwater.broker.log.log_config import LogConfig
from highwater.broker.log.parts import Origin
from highwater.broker.log.producer_entry import (
    Batch,
    CorruptSnapshotError,
    ProducerEntry,
    decode_snapshot,
    encode_snapshot,
)
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.wire.records import (
    MAX_SEQUENCE,
    TRANSACTIONAL,
    Marker,
    add_to_sequence,
    batches,
    build_marker,
)
from tests.unit.broker.log.conftest import (
    OWN,
    START_MS,
    Logs,
    batch,
    bytes_of,
    content,
    follow,
    lead,
    sequence_of,
)


def code_of(log: Log, data: bytearray, *, origin: Origin = Origin.CLIENT) -> ErrorCode:
    """The error of an append that must not change anything."""
    before = log.log_end_offset, log.size, log.producers.entries
    code = ErrorCode.NONE
    try:
        lead(log, data, origin=origin)
    except ApiError as error:
        code = error.code
    after = log.log_end_offset, log.size, log.producers.entries
    assert (code == ErrorCode.NONE) == (after != before)
    return code


def test_a_retry_gets_its_first_offset(logs: Logs) -> None:
    log = logs.open()
    for n in range(7):
        info = lead(log, batch(2, producer=(1, 0, 2 * n)))
        assert (info.base_offset, info.duplicate) == (2 * n, False)
    size = log.size
    for n in range(2, 7):
        info = lead(log, batch(2, producer=(1, 0, 2 * n)))
        assert (info.base_offset, info.last_offset, info.duplicate) == (2 * n, 2 * n + 1, True)
    assert log.size == size
    # the sixth is forgotten
    expected = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert code_of(log, batch(2, producer=(1, 0, 2))) == expected
    # and a batch that only overlaps is no retry
    assert code_of(log, batch(1, producer=(1, 0, 12))) == expected


@pytest.mark.parametrize("sequence", [0, 3, 6, MAX_SEQUENCE])
def test_a_gap_is_refused(logs: Logs, sequence: int) -> None:
    log = logs.open()
    lead(log, batch(5, producer=(1, 0, 0)))
    expected = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert code_of(log, batch(2, producer=(1, 0, sequence))) == expected
    assert code_of(log, batch(2, producer=(1, 0, 5))) == ErrorCode.NONE


def test_an_unknown_producer_begins_anywhere(logs: Logs) -> None:
    log = logs.open()
    assert code_of(log, batch(2, producer=(1, 0, 77))) == ErrorCode.NONE
    assert code_of(log, batch(2, producer=(1, 0, 79))) == ErrorCode.NONE


def test_epochs_fence(logs: Logs) -> None:
    log = logs.open()
    lead(log, batch(1, producer=(1, 5, 0)))
    assert code_of(log, batch(1, producer=(1, 4, 1))) == ErrorCode.INVALID_PRODUCER_EPOCH
    expected = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert code_of(log, batch(1, producer=(1, 6, 1))) == expected
    assert code_of(log, batch(1, producer=(1, 6, 0))) == ErrorCode.NONE
    assert code_of(log, batch(1, producer=(1, 5, 0))) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert sequence_of(log, 1) == [(0, 1)]


@pytest.mark.parametrize("count", [1, 3, 5])
def test_sequences_go_around(logs: Logs, count: int) -> None:
    log = logs.open()
    sequence = MAX_SEQUENCE - 6
    lead(log, batch(1, producer=(1, 0, sequence)))
    for _ in range(6):
        sequence = add_to_sequence(sequence, 1)
        offset = log.log_end_offset
        assert lead(log, batch(count, producer=(1, 0, sequence))).base_offset == offset
        assert lead(log, batch(count, producer=(1, 0, sequence))).duplicate
        sequence = add_to_sequence(sequence, count - 1)
    log.close()
    log = logs.open(clean=True)
    assert lead(log, batch(1, producer=(1, 0, add_to_sequence(sequence, 1)))).duplicate is False
    again = add_to_sequence(sequence, 1 - count)
    log.close()
    log = logs.open()
    assert lead(log, batch(count, producer=(1, 0, again))).duplicate


def test_a_follower_can_go_on_as_leader(logs: Logs, tmp_path: object) -> None:
    leader, follower = logs.open(), Logs(f"{tmp_path}/other-0").open()
    for n in range(7):
        lead(leader, batch(1, producer=(1, 0, n)))
    follow(follower, content(leader.read(0, 1 << 20, 7)))
    assert follower.producers.entries == leader.producers.entries
    for n in range(2, 7):
        assert lead(follower, batch(1, producer=(1, 0, n)), epoch=1).base_offset == n
    assert lead(follower, batch(1, producer=(1, 0, 7)), epoch=1).base_offset == 7


def test_five_batches_are_known_after_a_crash_and_after_a_truncation(logs: Logs) -> None:
    log = logs.open(LogConfig(segment_bytes=300))
    for n in range(20):
        lead(log, batch(1, producer=(1, 0, n)))
    expected = sequence_of(log, 1)
    assert len(expected) == 5
    log.close_files()
    log = logs.open(LogConfig(segment_bytes=300))
    assert sequence_of(log, 1) == expected
    log.truncate_to(13)
    assert sequence_of(log, 1)[-1] == (12, 12)
    assert max(log.producers.snapshots) <= 13
    assert lead(log, batch(1, producer=(1, 0, 13))).base_offset == 13


def test_expiry(logs: Logs) -> None:
    log = logs.open(LogConfig(producer_id_expiration_ms=1000))
    lead(log, batch(1, producer=(1, 0, 0), timestamp=START_MS))
    lead(log, batch(1, producer=(2, 0, 0), timestamp=START_MS + 500))
    lead(log, batch(1, producer=(3, 0, 0), timestamp=START_MS, attributes=TRANSACTIONAL))
    assert log.producers.expire(START_MS + 999) == 0
    assert log.producers.expire(START_MS + 1000) == 1
    assert [e.producer_id for e in log.producers.entries] == [2, 3]
    assert code_of(log, batch(1, producer=(1, 0, 9))) == ErrorCode.NONE


def test_transactions_bound_the_stable_offset(logs: Logs) -> None:
    log = logs.open()
    lead(log, batch(2))
    stable = [log.first_unstable_offset]
    lead(log, batch(2, producer=(1, 0, 0), attributes=TRANSACTIONAL))
    lead(log, batch(2, producer=(2, 0, 0), attributes=TRANSACTIONAL))
    lead(log, batch(2, producer=(1, 0, 2), attributes=TRANSACTIONAL))
    stable.append(log.first_unstable_offset)
    marker = lead(log, build_marker(Marker(True, 0), 1, 0, START_MS), origin=OWN).base_offset
    log.update_high_watermark(marker)
    stable.append(log.first_unstable_offset)  # decided, but not replicated
    log.update_high_watermark(marker + 1)
    stable.append(log.first_unstable_offset)
    lead(log, build_marker(Marker(False, 0), 2, 0, START_MS), origin=OWN)
    log.update_high_watermark(log.log_end_offset)
    stable.append(log.first_unstable_offset)
    assert stable == [None, 2, 2, 4, None]
    # the sequence goes on over the marker
    assert lead(log, batch(1, producer=(1, 0, 4))).duplicate is False


def test_markers_are_fenced(logs: Logs) -> None:
    log = logs.open()
    lead(log, batch(1, producer=(1, 3, 0), attributes=TRANSACTIONAL))
    old = build_marker(Marker(True, 5), 1, 2, START_MS)
    assert code_of(log, old, origin=OWN) == ErrorCode.INVALID_PRODUCER_EPOCH
    lead(log, build_marker(Marker(True, 5), 1, 3, START_MS), origin=OWN)
    zombie = build_marker(Marker(True, 4), 1, 3, START_MS)
    assert code_of(log, zombie, origin=OWN) == ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_a_plain_batch_inside_a_transaction_is_refused(logs: Logs) -> None:
    log = logs.open()
    lead(log, batch(1, producer=(1, 0, 0), attributes=TRANSACTIONAL))
    assert code_of(log, batch(1, producer=(1, 0, 1))) == ErrorCode.INVALID_TXN_STATE


def test_truncating_a_marker_opens_the_transaction_again(logs: Logs) -> None:
    log = logs.open()
    lead(log, batch(1, producer=(1, 0, 0), attributes=TRANSACTIONAL))
    lead(log, build_marker(Marker(True, 0), 1, 0, START_MS), origin=OWN)
    log.close()
    log = logs.open(clean=True)  # from a snapshot, which does not hold the marker's place
    unstable = [log.first_unstable_offset]
    log.truncate_to(1)
    unstable.append(log.first_unstable_offset)
    assert unstable == [None, 0]


_long = st.integers(0, 2**62)
_entries = st.builds(
    lambda pid, epoch, coordinator, time, txn, first, delta, offset, has: ProducerEntry(
        pid, epoch, coordinator, time, txn,
        (Batch(first, add_to_sequence(first, delta), offset, offset + delta, time),) if has else (),
        offset + delta if has else -1,
    ),
    _long,
    st.integers(0, 2**15 - 1),
    st.integers(-1, 2**31 - 1),
    _long,
    st.integers(-1, 2**62),
    st.integers(0, MAX_SEQUENCE),
    st.integers(0, 1000),
    _long,
    st.booleans(),
)  # fmt: skip


@pytest.mark.thorough
@settings(deadline=None)
@given(st.lists(_entries, max_size=5), st.data())
def test_snapshots(entries: list[ProducerEntry], data: st.DataObject) -> None:
    encoded = encode_snapshot(entries)
    assert len(encoded) == 10 + 46 * len(entries)
    assert decode_snapshot(encoded) == entries
    bad = bytearray(encoded)
    bad[data.draw(st.integers(0, len(bad) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(CorruptSnapshotError):
        decode_snapshot(bytes(bad))
    with pytest.raises(CorruptSnapshotError):
        decode_snapshot(encoded[: data.draw(st.integers(0, len(encoded) - 1))])


def test_a_damaged_snapshot_is_not_used(logs: Logs) -> None:
    log = logs.open(LogConfig(segment_bytes=300))
    for n in range(20):
        lead(log, batch(1, producer=(1, 0, n)))
    expected = sequence_of(log, 1)[-1]
    log.close()
    for offset in log.producers.snapshots:
        log.disk.replace(log.producers.snapshot_path(offset), b"")
    log = logs.open(LogConfig(segment_bytes=300), clean=True)
    assert sequence_of(log, 1)[-1] == expected
    assert len(sequence_of(log, 1)) == 5


def test_several_batches_are_checked_against_each_other(logs: Logs) -> None:
    log = logs.open()
    both = batch(2, producer=(1, 0, 0)) + batch(2, producer=(1, 0, 2))
    log.append_as_leader(memoryview(both), list(batches(both)), 0, START_MS)
    assert sequence_of(log, 1) == [(1, 1), (3, 3)]
    gap = batch(2, producer=(1, 0, 4)) + batch(2, producer=(1, 0, 7))
    with pytest.raises(ApiError):
        log.append_as_leader(memoryview(gap), list(batches(gap)), 0, START_MS)
    assert sequence_of(log, 1) == [(1, 1), (3, 3)]
    assert len(list(batches(bytes_of(log)))) == 2
