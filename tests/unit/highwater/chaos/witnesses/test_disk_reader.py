"""Reading a broker's disk from outside, on folders written as a broker writes them."""

from __future__ import annotations

from pathlib import Path

from highwater.chaos.witnesses import disk_reader as disk
from highwater.chaos.witnesses.deaths import DeathWitness
from highwater.cluster.faults.witness import PartitionState
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.records import Record, build_batch
from highwater.verdict.history import LineLog, read_lines

TP = TopicPartition("t", 0)


def batch(base: int, *values: str, epoch: int = 0, producer: int = -1, sequence: int = -1) -> bytes:
    records = [Record(b"k", value.encode(), 1000) for value in values]
    return bytes(
        build_batch(
            records, base_offset=base, partition_leader_epoch=epoch, producer_id=producer,
            producer_epoch=0 if producer >= 0 else -1, base_sequence=sequence,
        )
    )  # fmt: skip


def write(folder: Path, base: int, *batches: bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    segment = folder / f"{base:020d}.log"
    segment.write_bytes(b"".join(batches))
    return segment


def test_records_and_the_log_end_offset(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    write(folder, 0, batch(0, "a", "b"), batch(2, "c", epoch=3, producer=9, sequence=5))
    torn = batch(3, "d")
    write(folder, 3, torn[:-4])
    found = list(disk.stored_records(folder))
    assert [(r.offset, r.value, r.leader_epoch) for r in found] == [
        (0, "a", 0),
        (1, "b", 0),
        (2, "c", 3),
    ]
    assert (found[2].producer_id, found[2].sequence) == (9, 5)
    assert found[0].sequence == -1
    assert disk.log_end_offset(folder) == 3, "the torn batch does not count"
    write(folder, 3, torn)
    assert disk.log_end_offset(folder) == 4


def test_epoch_file(tmp_path: Path) -> None:
    (tmp_path / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n3 17\n")
    assert disk.epoch_entries(tmp_path) == [(0, 0), (3, 17)]
    assert disk.epoch_entries(tmp_path / "nothing") == []


def _truncated(witness: disk.SizeWitness) -> int:
    return witness.truncated_bytes


def test_a_log_that_became_shorter_is_counted_by_its_bytes(tmp_path: Path) -> None:
    log = LineLog(tmp_path / "sizes.jsonl")
    data = tmp_path / "data"
    first = write(data / "t-0", 0, b"x" * 100)
    second = write(data / "t-0", 5, b"x" * 50)
    witness: disk.SizeWitness = disk.SizeWitness({1: [data]}, log)
    witness.look()
    second.write_bytes(b"x" * 20)
    witness.look()
    assert _truncated(witness) == 30
    second.write_bytes(b"x" * 90)
    witness.look()
    assert _truncated(witness) == 30, "growth is no truncation"
    first.unlink()
    witness.look()
    assert _truncated(witness) == 30, "retention takes from the start"
    write(data / "t-0", 9, b"x" * 40)
    witness.look()
    (data / "t-0" / f"{9:020d}.log").unlink()
    witness.look()
    assert _truncated(witness) == 70, "truncation takes whole segments from the end"
    assert [line["was"] - line["size"] for line in read_lines(tmp_path / "sizes.jsonl")] == [30, 40]


def test_a_death_below_the_leo_is_seen_by_the_next_leaders_epoch(tmp_path: Path) -> None:
    write(tmp_path / "1" / "t-0", 0, batch(0, "a", "b", "c"))
    write(tmp_path / "2" / "t-0", 0, batch(0, "a"))
    deaths = DeathWitness(lambda number: [tmp_path / str(number)])
    deaths.died(1, {TP: PartitionState(1, 0, (1, 2), 1)})
    deaths.settle({TP: PartitionState(-1, 1, (2,), 1)})
    assert [death.next_start for death in deaths.deaths] == [None]
    (tmp_path / "2" / "t-0" / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n2 1\n")
    deaths.settle({TP: PartitionState(2, 2, (2,), 1)})
    assert deaths.deaths[0].log_end_offset == 3
    assert deaths.deaths[0].next_start == 1
    assert deaths.hw_below_leo == 1


def test_a_death_with_everything_replicated_does_not_count(tmp_path: Path) -> None:
    for number in ("1", "2"):
        write(tmp_path / number / "t-0", 0, batch(0, "a", "b"))
    (tmp_path / "2" / "t-0" / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n1 2\n")
    deaths = DeathWitness(lambda number: [tmp_path / str(number)])
    deaths.died(1, {TP: PartitionState(1, 0, (1, 2), 1)})
    deaths.settle({TP: PartitionState(2, 1, (2,), 1)})
    assert deaths.deaths[0].next_start == 2
    assert deaths.hw_below_leo == 0
