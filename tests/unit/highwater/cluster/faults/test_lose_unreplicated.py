"""The arranged loss, where the leadership or the ISR changes under its hands."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, cast

import pytest

from highwater.chaos.witnesses.deaths import DeathWitness
from highwater.cluster.faults.done import Done
from highwater.cluster.faults.fault_model import Fault
from highwater.cluster.faults.verb_table import VERBS
from highwater.cluster.faults.witness import PartitionState, Witness
from highwater.cluster.faults.workload_verbs import ATTEMPTS, ChaosStage
from highwater.cluster.interface import ZOOKEEPER, broker
from highwater.cluster.links.link_rules import Links
from highwater.cluster.run_folder import TopicInfo
from highwater.kafka.types import TopicPartition

TP = TopicPartition("lossy", 0)
LOSSY = TopicInfo("lossy", 1, 3, 1, expect_loss=True)


class Watched(Witness):
    """A view of the cluster that the test writes."""

    def now(self, leader: int, epoch: int, *isr: int) -> None:
        self._note(TP, PartitionState(leader, epoch, isr, 1))


class Members:
    """Three brokers, of which a killed one is followed by the next in the ISR."""

    brokers = (1, 2, 3)
    lacks: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.links = Links()
        self.zookeeper = Watched()
        self.zookeeper.brokers = frozenset(self.brokers)
        self.zookeeper.now(1, 0, 1, 2, 3)
        self.killed: list[str] = []
        self.deaths: list[str] = []

    zookeeper_connect = "zookeeper:2181"

    def members(self) -> list[str]:
        return [ZOOKEEPER, *map(broker, self.brokers)]

    def running(self, member: str) -> bool:
        return member not in self.killed

    async def kill(self, member: str) -> None:
        self.killed.append(member)
        self.deaths.append(member)
        state = self.zookeeper.partitions[TP]
        rest = [n for n in state.isr if broker(n) != member]
        self.zookeeper.now(rest[0] if rest else -1, state.leader_epoch + 1, *rest or state.isr)

    async def start(self, member: str) -> None:
        self.killed.remove(member)
        state = self.zookeeper.partitions[TP]
        self.zookeeper.now(state.leader if state.leader > 0 else 1, state.leader_epoch + 1, 1, 2, 3)


class Writer:
    """The workload: each burst changes something, and has a hundred records acknowledged."""

    def __init__(self, *changes: Callable[[], None]) -> None:
        self.changes = list(changes)
        self.acked = 0

    async def burst(self, rate: float) -> None:
        if rate and self.changes:
            self.changes.pop(0)()

    def acked_by(self, process_prefix: str) -> int:
        self.acked += 100
        return self.acked


async def lose(members: Members, writer: Writer) -> Done:
    stage = ChaosStage(
        cast("Any", members),
        members.zookeeper,
        random.Random(1),
        deaths=DeathWitness(lambda _: []),
        workload=writer,
        topics=[LOSSY],
    )
    return await VERBS["lose_unreplicated"].carry_out(stage, Fault("lose_unreplicated"))


async def test_the_leader_dies_and_a_follower_takes_over(autojump_clock: object) -> None:
    done = await lose(Members(), Writer())
    assert done.target == "broker-1"
    assert done.effect is not None
    assert done.effect.endswith("by broker-1; broker-2 leads")


async def test_a_leadership_that_moved_in_time_is_no_loss(autojump_clock: object) -> None:
    """A preferred election just before the cut: broker-2 acknowledges, and its death is wanted."""
    members = Members()
    done = await lose(members, Writer(lambda: members.zookeeper.now(2, 1, 2, 1, 3)))
    assert done.target == "broker-2"
    assert done.effect is not None
    assert done.effect.endswith("by broker-2; broker-1 leads (at attempt 2)")
    assert members.deaths == ["broker-2"]
    assert members.links.cuts == []


@pytest.mark.parametrize("times", [1, ATTEMPTS])
async def test_a_leader_left_alone_is_not_killed(times: int, autojump_clock: object) -> None:
    """Followers whose sessions ran out could not lead; they are back before the next attempt."""
    members = Members()
    state = members.zookeeper

    class Slow(Writer):
        async def burst(self, rate: float) -> None:
            await super().burst(rate)
            if not rate and state.partitions[TP].isr == (1,):
                state.now(1, 2, 1, 2, 3)

    done = await lose(members, Slow(*[lambda: state.now(1, 1, 1)] * times))
    assert (done.effect is None) == (times == ATTEMPTS)
    assert members.deaths == (["broker-1"] if times < ATTEMPTS else [])
