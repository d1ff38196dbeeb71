"""The rules of replication, on one partition with a real log."""

from __future__ import annotations

from pathlib import Path

import pytest

from highwater.broker.log.log_config import LogConfig
from highwater.broker.log.parts import Origin
from highwater.broker.log.recovery import load_log
from highwater.broker.replica.fetch_state import Truncation, truncation_step
from highwater.broker.replica.partition import IsrChange, LeaderAndIsr, Partition, Role
from highwater.kafka.config import Config
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.types import BrokerId, ControllerEpoch, LeaderEpoch, TopicPartition, ZkVersion
from highwater.kafka.wire.record_codec import Record
from highwater.kafka.wire.records import build_batch, validate_fetched
from highwater.world.real import RealWorld

TP = TopicPartition("t", 0)
LAG = 10_000
ALL, LEADER = -1, 1


class Rig:
    """A partition on broker 1 of brokers 1, 2, 3, and a clock moved by hand."""

    def __init__(self, folder: Path, min_isr: int = 1) -> None:
        world = RealWorld(seed=1)
        self.alive = {1, 2, 3}
        self.now = 1_000_000
        self.partition = Partition(TP, BrokerId(1), LAG, self.alive.__contains__)
        log = load_log(world.disk, world.clock, str(folder / "t-0"), TP, LogConfig.of(Config()))
        self.partition.host(log, 0, min_isr)
        self.version = 0

    def state(self, leader: int, epoch: int, isr: tuple[int, ...]) -> LeaderAndIsr:
        self.version += 1
        return LeaderAndIsr(
            BrokerId(leader), LeaderEpoch(epoch), ControllerEpoch(1), isr,
            ZkVersion(self.version), (1, 2, 3),
        )  # fmt: skip

    def lead(self, epoch: int = 0, isr: tuple[int, ...] = (1, 2, 3)) -> Partition:
        self.partition.make_leader(self.state(1, epoch, isr), self.now)
        return self.partition

    def append(self, n: int = 1, acks: int = ALL) -> int:
        data = memoryview(bytearray(batch(n)))
        info, _ = self.partition.append(data, acks, self.now, self.now, Origin.CLIENT)
        return info.last_offset + 1

    def fetch(self, follower: int, offset: int) -> IsrChange | None:
        return self.partition.follower_fetched(follower, offset, 0, self.now)[1]

    @property
    def end(self) -> int:
        return self.partition.require_log().log_end_offset


def batch(n: int, base: int = 0, epoch: int = 0) -> bytes:
    records = [Record(None, b"value %d" % i, 1) for i in range(n)]
    return bytes(build_batch(records, base_offset=base, partition_leader_epoch=epoch))


def code(call: object) -> ErrorCode:
    with pytest.raises(ApiError) as e:
        call()  # type: ignore[operator]
    return e.value.code


async def test_hw_is_the_least_leo_of_the_isr(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    p = rig.lead()
    required = rig.append(3)
    assert p.committed(required, p.generation) is None
    rig.fetch(2, 3)
    assert p.high_watermark == 0, "3 has shown nothing yet"
    rig.fetch(3, 2)
    assert p.high_watermark == 2
    rig.fetch(3, 3)
    assert p.high_watermark == 3
    assert p.committed(required, p.generation) is ErrorCode.NONE


async def test_a_leader_alone_commits_at_once(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    p = rig.lead(isr=(1,))
    assert p.committed(rig.append(), p.generation) is ErrorCode.NONE


async def test_shrink_counts_only_once_it_stands(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    p = rig.lead()
    rig.append()
    rig.fetch(2, 1)
    rig.now += LAG + 1
    rig.fetch(2, 1)
    change = p.maybe_shrink(rig.now)
    assert change is not None
    assert change.isr == (1, 2)
    assert change.zk_version == rig.version
    p.advance_high_watermark(rig.now)
    assert p.high_watermark == 0, "ZooKeeper may still have 3 in the ISR"
    assert p.isr_settled(change, ZkVersion(rig.version + 1), rig.now)
    assert p.high_watermark == 1
    assert p.isr.members == (1, 2)


async def test_expand_counts_at_once(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    p = rig.lead(isr=(1, 2))
    rig.append()
    rig.fetch(2, 1)
    assert p.high_watermark == 1
    change = rig.fetch(3, 1)
    assert change is not None
    assert change.isr == (1, 2, 3)
    rig.append()
    rig.fetch(2, 2)
    assert p.high_watermark == 1, "3 may already be in the ISR and could be elected"


async def test_no_expansion_below_the_epochs_start(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    p = rig.lead(0)
    rig.append(5)
    rig.fetch(2, 2)
    rig.fetch(3, 2)
    assert p.high_watermark == 2
    rig.lead(1, isr=(1, 2))
    assert p.epoch_start_offset == 5
    assert rig.fetch(3, 4) is None, "above the HW, but its tail may be of another history"
    assert rig.fetch(3, 5) is not None


async def test_a_dead_follower_does_not_join(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.lead(isr=(1, 2))
    rig.alive.discard(3)
    assert rig.fetch(3, 0) is None


async def test_a_follower_that_left_the_isr_does_not_hold_the_hw_back(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    p = rig.lead()
    rig.fetch(2, 0)
    rig.fetch(3, 0)
    rig.alive.discard(3)
    rig.lead(1, isr=(1, 2))
    rig.append()
    rig.fetch(2, 1)
    assert p.high_watermark == 1


async def test_min_isr_at_append_and_at_the_hw(tmp_path: Path) -> None:
    rig = Rig(tmp_path, min_isr=2)
    p = rig.lead(isr=(1,))
    assert code(rig.append) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert rig.end == 0
    rig.append(acks=LEADER)
    assert p.high_watermark == 0, "the HW stays while the ISR is below min.insync.replicas"
    change = rig.fetch(2, 1)
    assert change is not None
    p.isr_settled(change, ZkVersion(9), rig.now)
    assert p.high_watermark == 1


async def test_the_isr_shrank_below_min_after_the_append(tmp_path: Path) -> None:
    rig = Rig(tmp_path, min_isr=2)
    p = rig.lead()
    required = rig.append()
    rig.fetch(2, 1)
    rig.fetch(3, 1)
    rig.lead(1, isr=(1,))
    assert p.committed(required, p.generation) is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


async def test_an_append_is_not_acknowledged_over_a_term_as_follower(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    p = rig.lead()
    required, generation = rig.append(), p.generation
    p.make_follower(rig.state(2, 1, (1, 2, 3)))
    assert p.committed(required, generation) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    rig.lead(2, isr=(1,))
    assert p.high_watermark == 1
    assert p.committed(required, generation) is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_an_answer_about_an_older_state_is_passed_over(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    p = rig.lead(isr=(1, 2))
    change = rig.fetch(3, 0)
    assert change is not None
    rig.lead(1, isr=(1, 2))
    assert not p.isr_settled(change, ZkVersion(50), rig.now)
    assert p.isr.members == (1, 2)
    assert p.isr.zk_version == rig.version


async def test_leader_epoch_fence(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    p = rig.lead(4)
    p.check_leader_epoch(-1)
    p.check_leader_epoch(4)
    assert code(lambda: p.check_leader_epoch(3)) is ErrorCode.FENCED_LEADER_EPOCH
    assert code(lambda: p.check_leader_epoch(5)) is ErrorCode.UNKNOWN_LEADER_EPOCH


async def test_latest_offset_waits_for_the_hw_to_reach_the_epoch(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    p = rig.lead()
    rig.append(2)
    p.make_follower(rig.state(2, 1, (1, 2, 3)))
    rig.lead(2)
    assert code(lambda: p.latest_offset(0)) is ErrorCode.OFFSET_NOT_AVAILABLE
    rig.fetch(2, 2)
    rig.fetch(3, 2)
    assert p.latest_offset(0) == 2


async def test_a_follower_takes_the_leaders_hw_but_not_beyond_its_own_end(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    p = rig.partition
    p.make_follower(rig.state(2, 0, (1, 2, 3)))
    data = memoryview(batch(3))
    p.append_fetched(data, validate_fetched(data), 10, 0)
    assert p.high_watermark == 3
    assert code(p.leader_log) is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_truncation_goes_by_epochs_and_not_by_the_hw(tmp_path: Path) -> None:
    """KIP-101, first example: a committed record lies above the follower's own HW."""
    rig = Rig(tmp_path)
    p = rig.partition
    p.make_follower(rig.state(2, 0, (1, 2, 3)))
    data = memoryview(batch(2))
    p.append_fetched(data, validate_fetched(data), 1, 0)
    log = p.require_log()
    assert p.high_watermark == 1
    assert truncation_step(log, p.high_watermark, 0, 2) == Truncation(2, True)
    assert truncation_step(log, p.high_watermark, 0, 1) == Truncation(1, True)
    assert truncation_step(log, p.high_watermark, -1, -1) == Truncation(1, True)


async def test_truncation_repeats_where_the_leader_names_an_unknown_epoch(tmp_path: Path) -> None:
    """KIP-279: epochs 0 and 3 here, 0, 1 and 2 at the leader."""
    rig = Rig(tmp_path)
    p = rig.partition
    p.make_follower(rig.state(2, 0, (1, 2, 3)))
    for base, epoch in ((0, 0), (2, 3)):
        data = memoryview(batch(2, base, epoch))
        p.append_fetched(data, validate_fetched(data), 0, 0)
    log = p.require_log()
    assert log.epochs.latest == 3
    assert truncation_step(log, 0, 2, 6) == Truncation(2, False)
    p.truncate_to(2)
    assert log.epochs.latest == 0
    assert truncation_step(log, 0, 0, 1) == Truncation(1, True)


async def test_a_cut_of_a_compacted_log_takes_the_hw_along(tmp_path: Path) -> None:
    """Compaction has left a hole before the cut, so that the log ends below it."""
    rig = Rig(tmp_path)
    p = rig.partition
    p.make_follower(rig.state(2, 0, (1, 2, 3)))
    for n, base, epoch in ((1, 0, 0), (5, 10, 3)):
        data = memoryview(batch(n, base, epoch))
        p.append_fetched(data, validate_fetched(data), 15, 0)
    assert p.high_watermark == 15
    p.truncate_to(8)
    assert (rig.end, p.high_watermark) == (1, 1)


async def test_with_flush_messages_1_the_leaders_copy_counts_when_it_is_flushed(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path)
    p = rig.lead(isr=(1,))
    log = p.require_log()
    log.config = log.config.with_overrides({"flush.messages": "1"})
    rig.append(2)
    assert p.high_watermark == 0
    assert log.flush_due
    await log.flush()
    assert p.advance_high_watermark(rig.now)
    assert p.high_watermark == 2


@pytest.mark.parametrize("delete", [False, True])
async def test_a_leader_that_is_stopped_acknowledges_nothing_more(
    tmp_path: Path, delete: bool
) -> None:
    rig = Rig(tmp_path)
    p = rig.lead(0, isr=(1,))
    end, term = rig.append(), p.generation
    assert p.committed(end, term) is ErrorCode.NONE
    p.stop(delete)
    assert p.role is (Role.NONE if delete else Role.FOLLOWER)
    assert p.committed(end, term) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    rig.lead(1, isr=(1,))
    assert p.committed(end, term) is ErrorCode.NOT_LEADER_OR_FOLLOWER, "its term has ended"


async def test_a_follower_that_is_stopped_goes_on_where_it_was(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.partition.make_follower(rig.state(2, 0, ()))
    term = rig.partition.generation
    rig.partition.stop(delete=False)
    assert (rig.partition.role, rig.partition.generation) == (Role.FOLLOWER, term)


async def test_an_append_believes_a_batch_as_far_as_its_origin(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    p = rig.lead(0, isr=(1,))
    broken, two = bytearray(batch(1)), bytearray(batch(1) + batch(1))
    broken[-1] ^= 1

    def code_of(data: bytearray, origin: Origin) -> ErrorCode:
        try:
            p.append(memoryview(bytearray(data)), 1, rig.now, rig.now, origin)
        except ApiError as e:
            return e.code
        return ErrorCode.NONE

    assert code_of(broken, Origin.CLIENT) is ErrorCode.CORRUPT_MESSAGE
    assert code_of(two, Origin.CLIENT) is ErrorCode.INVALID_RECORD
    assert p.require_log().log_end_offset == 0
    assert code_of(two, Origin.COORDINATOR) is ErrorCode.NONE
    assert p.require_log().log_end_offset == 2
    p.stop(delete=True)
    assert code_of(broken, Origin.CLIENT) is ErrorCode.NOT_LEADER_OR_FOLLOWER, "it is asked first"
