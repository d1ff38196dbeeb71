"""A log after a crash: whole, undamaged batches, and everything derived from them."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from highwater.broker.log.checkpoints import LEADER_EPOCHS, encode_epochs
from highwater.broker.log.log import Log
from highwater.broker.log.log_config import LogConfig
from highwater.broker.log.recovery import DamagedLogError, UnsupportedFormatError
from highwater.kafka.wire.record_codec import Record
from highwater.kafka.wire.records import (
    TRANSACTIONAL,
    Marker,
    batches,
    build_batch,
    build_marker,
)
from tests.unit.broker.log.conftest import (
    OWN,
    START_MS,
    Logs,
    batch,
    bytes_of,
    check_indexes,
    content,
    follow,
    headers_of,
    lead,
    sequence_of,
)

SMALL = LogConfig(index_interval_bytes=100, segment_bytes=600)


def fill(log: Log, count: int) -> None:
    """Two producers, several epochs, several segments."""
    sequences = [0, 0]
    for n in range(count):
        who, records = n % 2, n % 3 + 1
        lead(log, batch(records, producer=(who, 0, sequences[who])), epoch=n // 4)
        sequences[who] += records


def check_whole(logs: Logs, log: Log, original: bytes) -> None:
    """Checks that the log is a prefix of the original, that its parts agree, that it goes on."""
    data = bytes_of(log)
    assert original.startswith(data)
    headers = headers_of(log)
    end = headers[-1].last_offset + 1 if headers else 0
    assert log.log_end_offset == end
    assert sum(h.size for h in headers) == len(data)
    epochs: list[tuple[int, int]] = []
    for header in headers:
        if not epochs or epochs[-1][0] != header.partition_leader_epoch:
            epochs.append((header.partition_leader_epoch, header.base_offset))
    # a leader that appended nothing, or whose first batch was torn, stays known
    assert [e for e in log.epochs.entries if e[1] < end] == epochs
    for who in (0, 1):
        mine = [(h.last_sequence, h.last_offset) for h in headers if h.producer_id == who]
        assert sequence_of(log, who)[-1:] == mine[-1:]
    check_indexes(log)
    for offset in range(end):
        (first, *_) = batches(content(log.read(offset, 1, end)))
        assert first.base_offset <= offset <= first.last_offset
    assert lead(log, batch(2), epoch=99).base_offset == end


def test_the_last_batch_is_cut_wherever_it_ends(logs: Logs) -> None:
    log = logs.open(LogConfig(index_interval_bytes=100))
    fill(log, 6)
    original = bytes_of(log)
    last = headers_of(log)[-1]
    log.close_files()
    name = f"{logs.folder}/{0:020d}.log"
    for size in range(last.position, last.position + last.size):
        Path(name).write_bytes(original[:size])
        log = logs.open(LogConfig(index_interval_bytes=100))
        assert log.log_end_offset == last.base_offset
        check_whole(logs, log, original)
        log.close_files()


@pytest.mark.thorough
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_a_flipped_bit_cuts_the_log_there(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        logs = Logs(f"{folder}/topic-0")
        log = logs.open(SMALL)
        fill(log, 20)
        log.write_all()
        original, headers = bytes_of(log), headers_of(log)
        bases = [segment.base_offset for segment in log.segments]
        log.close_files()
        victim = data.draw(st.integers(0, len(headers) - 1))
        header = headers[victim]
        base = max(b for b in bases if b <= header.base_offset)
        # base offset and leader epoch are outside the CRC: flips there are found only where
        # they break the order
        byte = data.draw(st.sampled_from([8, 9, 10, 11, *range(16, header.size)]))
        path = Path(f"{logs.folder}/{base:020d}.log")
        damaged = bytearray(path.read_bytes())
        damaged[header.position + byte] ^= 1 << data.draw(st.integers(0, 7))
        path.write_bytes(damaged)
        log = logs.open(SMALL)
        assert log.log_end_offset == header.base_offset
        check_whole(logs, log, original)
        log.close_files()


@pytest.mark.thorough
@settings(max_examples=100, deadline=None)
@given(cut=st.integers(0, 10_000), junk=st.binary(max_size=200), zeros=st.integers(0, 300))
def test_any_tail_after_a_power_loss(cut: int, junk: bytes, zeros: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        logs = Logs(f"{folder}/topic-0")
        log = logs.open(LogConfig(index_interval_bytes=100))
        fill(log, 12)
        original = bytes_of(log)
        log.close_files()
        path = Path(f"{logs.folder}/{0:020d}.log")
        path.write_bytes(original[: cut % (len(original) + 1)] + bytes(zeros) + junk)
        log = logs.open(LogConfig(index_interval_bytes=100))
        check_whole(logs, log, original)
        log.close_files()


def test_offsets_must_go_on(logs: Logs) -> None:
    """Old blocks of a file system may come back as whole, valid batches."""
    log = logs.open()
    fill(log, 6)
    original, headers = bytes_of(log), headers_of(log)
    log.close_files()
    path = Path(f"{logs.folder}/{0:020d}.log")
    path.write_bytes(original + original[headers[2].position :])
    log = logs.open()
    assert bytes_of(log) == original
    check_whole(logs, log, original)


def test_epochs_must_not_fall(logs: Logs) -> None:
    """As above, where the old block goes on at the very offset."""
    log = logs.open()
    for epoch in (0, 0, 1):
        lead(log, batch(2), epoch=epoch)
    stale = bytes_of(log)[headers_of(log)[2].position :]
    log.truncate_to(2)
    lead(log, batch(2), epoch=2)
    original = bytes_of(log)
    log.close_files()
    Path(f"{logs.folder}/{0:020d}.log").write_bytes(original + stale)
    log = logs.open()
    assert bytes_of(log) == original
    assert log.epochs.entries == [(0, 0), (2, 2)]


@pytest.mark.parametrize("first", [0, 1, 2])
def test_an_epoch_file_of_another_log_cuts_nothing(
    logs: Logs, caplog: pytest.LogCaptureFixture, first: int
) -> None:
    """Where the log does not begin at 0, an entry can be below all of it."""
    log = logs.open(SMALL)
    fill(log, 20)
    original, headers = bytes_of(log), headers_of(log)
    bases = [segment.base_offset for segment in log.segments]
    log.close_files()
    for gone in bases[:first]:
        for path in Path(logs.folder).glob(f"{gone:020d}.*"):
            path.unlink()
    for point in (bases[1], bases[2]):
        Path(f"{logs.folder}/{LEADER_EPOCHS}").write_bytes(encode_epochs([(99, 0)]))
        log = logs.open(SMALL, recovery_point=point, log_start_offset=bases[first])
        left = [header for header in headers if header.base_offset >= bases[first]]
        assert original.endswith(bytes_of(log))
        assert headers_of(log)[-1].last_offset == headers[-1].last_offset
        assert log.epochs.entries[0] == (left[0].partition_leader_epoch, bases[first])
        assert log.epochs.latest == left[-1].partition_leader_epoch
        log.close_files()
        assert "leader-epoch-checkpoint is not of this log" in caplog.text
        caplog.clear()


@pytest.mark.parametrize("chunk", [70, 100, 250, 1000])
def test_batches_are_whole_wherever_a_chunk_ends(
    logs: Logs, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    log = logs.open()
    fill(log, 12)
    original = bytes_of(log)
    log.close_files()
    monkeypatch.setattr("highwater.broker.log.recovery.CHUNK", chunk)
    assert bytes_of(logs.open()) == original


def test_recovery_begins_at_the_recovery_point(logs: Logs) -> None:
    log = logs.open(SMALL)
    fill(log, 20)
    log.write_all()
    bases = [segment.base_offset for segment in log.segments]
    log.close_files()
    path = Path(f"{logs.folder}/{bases[0]:020d}.log")
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 1
    path.write_bytes(damaged)
    end = log.log_end_offset
    assert logs.open(SMALL, recovery_point=bases[1]).log_end_offset == end
    assert logs.open(SMALL, recovery_point=bases[1] - 1).log_end_offset < bases[1]


def test_missing_files_are_made_again(logs: Logs) -> None:
    log = logs.open(SMALL)
    fill(log, 20)
    original = bytes_of(log)
    log.close()
    for name in Path(logs.folder).iterdir():
        if name.suffix != ".log":
            name.unlink()
    for clean in (True, False):
        log = logs.open(SMALL, clean=clean)
        assert bytes_of(log) == original
        check_whole(logs, log, original)
        original = bytes_of(log)
        log.close()
        Path(f"{logs.folder}/{LEADER_EPOCHS}").unlink()


def test_a_clean_log_is_opened_without_reading_it(logs: Logs, monkeypatch: object) -> None:
    log = logs.open(SMALL)
    fill(log, 20)
    end, entries = log.log_end_offset, log.epochs.entries
    five = [sequence_of(log, who)[-1] for who in (0, 1)]
    log.close()
    snapshots = {p.name for p in Path(logs.folder).glob("*.snapshot")}
    assert f"{end:020d}.snapshot" in snapshots
    log = logs.open(SMALL, clean=True)
    assert (log.log_end_offset, log.recovery_point, log.epochs.entries) == (end, end, entries)
    assert [sequence_of(log, who)[-1] for who in (0, 1)] == five
    assert sum(len(segment._tail_last) for segment in log.segments) == 0


def test_a_clean_log_with_a_torn_tail_is_recovered(
    logs: Logs, caplog: pytest.LogCaptureFixture
) -> None:
    log = logs.open()
    fill(log, 5)
    original, last = bytes_of(log), headers_of(log)[-1]
    log.close()
    path = Path(f"{logs.folder}/{0:020d}.log")
    path.write_bytes(original[:-3])
    log = logs.open(clean=True)
    assert log.log_end_offset == last.base_offset
    assert "were cut off" in caplog.text
    check_whole(logs, log, original)


def test_offsets_below_a_truncation_are_not_trusted(logs: Logs) -> None:
    """The epoch file may be older than the log: it is written without waiting for the disk."""
    log = logs.open()
    for epoch in range(4):
        lead(log, batch(5), epoch=epoch)
    stale = Path(f"{logs.folder}/{LEADER_EPOCHS}").read_bytes()
    log.truncate_to(8)
    lead(log, batch(5), epoch=9)
    log.close_files()
    Path(f"{logs.folder}/{LEADER_EPOCHS}").write_bytes(stale)
    log = logs.open()
    assert log.epochs.entries == [(0, 0), (9, 5)]
    log.close_files()
    log = logs.open()
    assert log.epochs.entries == [(0, 0), (9, 5)]


def test_leftovers_are_removed(logs: Logs) -> None:
    log = logs.open(SMALL)
    fill(log, 10)
    original = bytes_of(log)
    log.close()
    folder = Path(logs.folder)
    leftovers = [f"{7:020d}.log.deleted", f"{9:020d}.log.cleaned", "x.tmp", f"{10**6:020d}.index"]
    for name in leftovers:
        (folder / name).write_bytes(b"x")
    (folder / "partition.metadata").write_bytes(b"version: 0\ntopic_id: abc\n")
    log = logs.open(SMALL, clean=True)
    assert bytes_of(log) == original
    assert not [name for name in leftovers if (folder / name).exists()]
    assert (folder / "partition.metadata").read_bytes() == b"version: 0\ntopic_id: abc\n"


def test_an_interrupted_swap_is_finished(logs: Logs) -> None:
    log = logs.open(SMALL)
    fill(log, 20)
    log.close()
    (first, second, third), folder = [s.base_offset for s in log.segments][:3], Path(logs.folder)
    merged = b"".join((folder / f"{b:020d}.log").read_bytes() for b in (first, second))
    original = bytes_of(logs.open(SMALL, clean=True))
    (folder / f"{first:020d}.log.swap").write_bytes(merged)
    aborted = folder / f"{first:020d}.txnindex"
    aborted.write_bytes(bytes(34))  # of what is replaced; what replaces it has no such transaction
    log = logs.open(SMALL, recovery_point=third)
    assert not aborted.exists()
    assert [s.base_offset for s in log.segments][:2] == [first, third]
    assert bytes_of(log) == original


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_that_ends_before_its_start_is_emptied(logs: Logs, clean: bool) -> None:
    log = logs.open()
    fill(log, 5)
    log.close()
    log = logs.open(log_start_offset=1000, clean=clean)
    assert (log.log_start_offset, log.log_end_offset, log.size) == (1000, 1000, 0)
    assert log.epochs.entries == []
    assert sequence_of(log, 0) == sequence_of(log, 1) == []
    assert lead(log, batch(1)).base_offset == 1000


def test_the_log_start_offset_is_kept(logs: Logs) -> None:
    log = logs.open()
    fill(log, 12)
    end = log.log_end_offset
    log.close()
    log = logs.open(log_start_offset=10)
    assert (log.log_start_offset, log.log_end_offset) == (10, end)
    assert log.epochs.entries[0][1] == 10


@pytest.mark.parametrize("clean", [False, True])
def test_epochs_of_records_that_come_back_are_found(logs: Logs, clean: bool) -> None:
    """Seed 1118 --pace 0.3 --power-loss --trimmed at 02934f8, R8: the epoch file was written when
    the log start moved up, a crash came before the checkpoint with the log start."""
    log = logs.open(SMALL)
    fill(log, 20)
    entries = log.epochs.entries
    assert len(log.segments) > 3
    log.advance_log_start(entries[3][1] + 1)
    assert len(log.epochs.entries) == len(entries) - 3
    log.close_files()
    recovery_point = log.segments[3].base_offset
    log = logs.open(SMALL, clean=clean, recovery_point=recovery_point, log_start_offset=2)
    assert log.log_start_offset == 2
    assert log.epochs.entries == [(0, 2), *entries[1:]]
    log.close_files()
    log = logs.open(SMALL, clean=True, log_start_offset=2)
    assert log.epochs.entries == [(0, 2), *entries[1:]]


@pytest.mark.parametrize("clean", [False, True])
def test_epochs_are_found_where_the_file_has_none(logs: Logs, clean: bool) -> None:
    """Seed 922 --pace 0.3 --trimmed at fcf1e091, R8: the log began at its end, and a crash came
    before the checkpoint with the log start."""
    log = logs.open(SMALL)
    fill(log, 20)
    entries, end = log.epochs.entries, log.log_end_offset
    log.advance_log_start(end)
    log.epochs.lead(entries[-1][0] + 1, end)
    log.epochs.truncate_from_end(end)  # it follows another leader
    log.close_files()
    recovery_point = log.segments[3].base_offset
    log = logs.open(SMALL, clean=clean, recovery_point=recovery_point)
    assert log.epochs.entries == entries
    log.advance_log_start(end)
    log.epochs.truncate_from_end(end)
    log.close_files()
    log = logs.open(SMALL, clean=clean, recovery_point=recovery_point, log_start_offset=end)
    assert (log.log_start_offset, log.log_end_offset) == (end, end)
    assert log.epochs.entries == ([] if clean else [(entries[-1][0], end)])


async def test_what_recovery_writes_is_flushed(logs: Logs) -> None:
    """Seed 1866 of five flags at fcf1e091, L2: the file of the epochs was lost, and the indexes of
    all segments were written anew, of which nobody flushed those below the recovery point."""
    log = logs.open(SMALL)
    fill(log, 20)
    entries, bases = log.epochs.entries, [segment.base_offset for segment in log.segments]
    log.close_files()
    Path(f"{logs.folder}/{LEADER_EPOCHS}").unlink()
    log = logs.open(SMALL, clean=False, recovery_point=bases[3])
    assert log.epochs.entries == entries
    unsynced = [segment.unsynced_indexes for segment in log.segments]
    assert unsynced == [False, False, True, True], "the process before may have ended too soon"
    await log.flush()
    assert not any(segment.unsynced_indexes for segment in log.segments)
    log.close_files()
    Path(f"{logs.folder}/{bases[1]:020d}.index").unlink()
    log = logs.open(SMALL, clean=False, recovery_point=bases[3])
    assert log.recovery_point == bases[1]
    await log.flush()
    assert not any(segment.unsynced_indexes for segment in log.segments)


def test_an_epoch_begins_with_the_hole_before_its_first_batch(logs: Logs) -> None:
    """Seed 1889 of five flags at fcf1e091, C2."""
    log = logs.open(SMALL)
    for base, epoch in ((0, 0), (1, 1), (10, 4), (11, 4)):
        record = Record(b"key", b"value", 0)
        follow(log, bytes(build_batch([record], base_offset=base, partition_leader_epoch=epoch)))
    entries = [(0, 0), (1, 1), (4, 2)]
    assert log.epochs.entries == entries
    assert log.epochs.end_offset_for(1, log.log_end_offset) == (1, 2)
    log.close_files()
    Path(f"{logs.folder}/{LEADER_EPOCHS}").unlink()
    for recovery_point in (0, 11):
        log = logs.open(SMALL, recovery_point=recovery_point)
        assert log.epochs.entries == entries
        log.close_files()


def test_an_epoch_begins_with_the_hole_before_its_first_segment(logs: Logs) -> None:
    """Seed 309 of --compacted --transactions at 576f6800, L2."""
    compacted = replace(SMALL, cleanup_policy="compact")
    log = logs.open(SMALL)
    for n in range(20):
        lead(log, batch(1), epoch=n // 4)
    bases = [segment.base_offset for segment in log.segments]
    log.close_files()
    path = Path(f"{logs.folder}/{bases[0]:020d}.log")
    first = next(batches(path.read_bytes()))
    path.write_bytes(path.read_bytes()[: first.size])
    log = logs.open(compacted, clean=False)
    epoch = headers_of(log)[1].partition_leader_epoch
    assert bases[1] > 4, "the first segment has a whole epoch, and a part of the next one"
    assert log.epochs.entries[1] == (epoch, 1), "nothing of an older epoch is in the hole"
    log.close_files()


def test_holes_of_a_compacted_log_are_doubtful(logs: Logs) -> None:
    """Seeds 1833 and 1837 of five flags at fcf1e091, R5: a power loss took a tombstone at the end
    of a segment, and not the segments after it."""
    compacted = replace(SMALL, cleanup_policy="compact")
    log = logs.open(SMALL)
    fill(log, 20)
    bases = [segment.base_offset for segment in log.segments]
    data = bytes_of(log)
    log.close_files()
    path = Path(f"{logs.folder}/{bases[2]:020d}.log")
    last = list(batches(path.read_bytes()))[-1]
    path.write_bytes(path.read_bytes()[: last.position])
    for cleaned_to, doubtful in ((0, last.base_offset), (bases[3], None)):
        log = logs.open(compacted, clean=False, cleaned_to=cleaned_to)
        assert log.doubtful_from == doubtful
        assert len(bytes_of(log)) == len(data) - last.size, "it keeps what it has"
        log.close_files()


def test_damage_in_records_that_come_back_cuts_nothing(logs: Logs) -> None:
    """Found by Hypothesis in `test_damaged_files.py`: a log that was closed in order lost all that
    follows the damage, which nobody had to read but for the forgotten epochs."""
    log = logs.open(SMALL)
    fill(log, 20)
    entries = log.epochs.entries
    log.advance_log_start(entries[3][1] + 1)
    log.close_files()
    segment = Path(log.segments[0].file.path)
    segment.write_bytes(bytes(61) + segment.read_bytes()[61:])
    sizes = {path: path.stat().st_size for path in Path(logs.folder).glob("*.log")}
    with pytest.raises(DamagedLogError, match=r"000.log: no record batch .*; delete .*-checkpoint"):
        logs.open(SMALL, clean=True)
    assert {path: path.stat().st_size for path in Path(logs.folder).glob("*.log")} == sizes
    log = logs.open(SMALL, clean=True, log_start_offset=entries[3][1] + 1)
    assert log.epochs.entries == [(entries[3][0], entries[3][1] + 1), *entries[4:]]


def test_an_epoch_file_of_another_log_has_no_say_in_records_that_come_back(logs: Logs) -> None:
    log = logs.open(SMALL)
    fill(log, 20)
    entries = log.epochs.entries
    log.advance_log_start(entries[3][1] + 1)
    log.close_files()
    path = Path(f"{logs.folder}/{LEADER_EPOCHS}")
    path.write_bytes(encode_epochs([(1, entries[3][1] + 1), (2, entries[4][1] + 1)]))
    log = logs.open(SMALL, clean=True)
    assert log.epochs.entries == entries


def test_old_message_formats_are_refused_and_not_cut_off(logs: Logs) -> None:
    import zlib

    body = bytes([1, 0]) + (5).to_bytes(8, "big") + b"\xff\xff\xff\xff" + b"\0\0\0\1v"
    message = (
        (0).to_bytes(8, "big")
        + (len(body) + 4).to_bytes(4, "big")
        + zlib.crc32(body).to_bytes(4, "big")
        + body
    )
    data = message * 3
    Path(logs.folder).mkdir()
    path = Path(f"{logs.folder}/{0:020d}.log")
    path.write_bytes(data)
    with pytest.raises(UnsupportedFormatError, match="format v1"):
        logs.open()
    assert path.read_bytes() == data


def test_transactions_survive_recovery(logs: Logs, tmp_path: Path) -> None:
    log = logs.open()
    lead(log, batch(2, producer=(1, 0, 0), attributes=TRANSACTIONAL))
    lead(log, batch(2, producer=(2, 0, 0), attributes=TRANSACTIONAL))
    lead(log, build_marker(Marker(False, 3), 1, 0, START_MS), origin=OWN)
    assert log.first_unstable_offset == 0  # the marker is not replicated yet
    log.update_high_watermark(5)
    assert log.first_unstable_offset == 2
    log.close()
    shutil.copytree(logs.folder, tmp_path / "copy-0")
    for clean, folder in ((True, logs.folder), (False, str(tmp_path / "copy-0"))):
        log = Logs(folder).open(clean=clean)
        log.update_high_watermark(5)
        assert log.first_unstable_offset == 2
        lead(log, build_marker(Marker(True, 3), 2, 0, START_MS), origin=OWN)
        log.update_high_watermark(6)
        assert log.first_unstable_offset is None
