"""The verbs that need a run's workload and its witnesses: `burst`, `lose_unreplicated`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

import trio

from highwater.cluster.faults.done import Done
from highwater.cluster.faults.fault_model import Fault
from highwater.cluster.faults.stage import Led, Stage, at_once
from highwater.cluster.faults.verbs import cut_pairs, kill_member, start_member
from highwater.cluster.faults.witness import PartitionState
from highwater.cluster.interface import BROKER_LINKS, PATIENCE_S, ZOOKEEPER, ClusterError, broker
from highwater.cluster.links.link_rules import Action, Rule
from highwater.cluster.run_folder import TopicInfo
from highwater.kafka.types import TopicPartition

ACKED_S = 3.0
"""The extra time in which a leader that stands alone must acknowledge its first record of acks=1;
less than a session, after which it is no leader any more."""
ATTEMPTS = 3
"""How often `lose_unreplicated` tries."""


class WorkloadControl(Protocol):
    """The verbs' requests to the workload."""

    async def burst(self, rate: float) -> None:
        """Sets the acks=1 records a second on the lossy topic; 0 goes back to the trickle."""

    def acked_by(self, process_prefix: str) -> int: ...


class Deaths(Protocol):
    """What the dead leaders had on their disks: `chaos.witnesses.deaths`."""

    def died(self, broker: int, led: Led) -> None: ...

    def settle(self, partitions: dict[TopicPartition, PartitionState]) -> None: ...


@dataclass(slots=True, kw_only=True)
class ChaosStage(Stage):
    deaths: Deaths
    workload: WorkloadControl
    topics: list[TopicInfo]

    def died(self, number: int, led: Led) -> None:
        self.deaths.died(number, led)

    @property
    def lossy(self) -> TopicInfo:
        return next(t for t in self.topics if t.expect_loss)


async def burst(stage: ChaosStage, fault: Fault) -> Done:
    before = stage.workload.acked_by("producer-acks1")
    await stage.workload.burst(float(fault.params["rate"]))
    await trio.sleep(float(fault.params["seconds"]))
    await stage.workload.burst(0)
    acked = stage.workload.acked_by("producer-acks1") - before
    return Done(stage.lossy.name, f"{acked} records acknowledged" if acked else None)


def _could_be_led_by_others(stage: ChaosStage, tp: TopicPartition) -> bool:
    """Whether others could lead: a killed broker may still be in the ISR, so all must live."""
    state, live = stage.zookeeper.partitions[tp], stage.zookeeper.brokers
    return len(state.isr) >= 2 and state.leader in live and set(state.isr) <= set(live)


async def _sever(
    stage: ChaosStage, leader: str, others: list[str]
) -> Callable[[], Awaitable[object]]:
    """Keeps the others from fetching; returns what undoes that.  Where no link between brokers can
    be cut, it pauses them."""
    if BROKER_LINKS not in stage.cluster.lacks:
        done = cut_pairs(stage, [p for o in others for p in ((leader, o), (o, leader))])
        assert done.undo is not None
        return done.undo
    stage.stopped_by_pause.update(others)

    async def resume() -> None:
        await at_once(stage.cluster.resume, others)
        stage.stopped_by_pause.difference_update(others)

    try:
        await at_once(stage.cluster.pause, others)
    except ClusterError:
        await resume()
        raise
    return resume


def _shrink_of(stage: ChaosStage, leader: str, tp: TopicPartition) -> Rule:
    """The rule that holds a leader's change of the partition's ISR."""
    if not stage.cluster.zookeeper_connect:
        return Rule(Action.HOLD, "AlterPartition", source=leader, limit=0)
    path = f"/topics/{tp.topic}/partitions/{tp.partition}/state"
    return Rule(Action.HOLD, "setData", source=leader, target=ZOOKEEPER, path=path, limit=0)


async def lose_unreplicated(stage: ChaosStage, fault: Fault) -> Done:
    """Makes the loss that acks=1 allows: both followers are cut off, the leader acknowledges alone,
    and dies.

    Nothing is lost if the leadership moved just before the cut (a preferred election), if a busy
    machine let the followers' sessions run out, or if nothing was acknowledged in time.  Then it
    tries again, and the effect says which attempt succeeded.
    """
    tp = TopicPartition(stage.lossy.name, 0)
    for attempt in range(1, ATTEMPTS + 1):
        done = await lose_once(stage, fault, tp)
        if done.effect is not None:
            if attempt > 1:
                done.effect += f" (at attempt {attempt})"
            break
    return done


async def lose_once(stage: ChaosStage, fault: Fault, tp: TopicPartition) -> Done:
    """One attempt of `lose_unreplicated`.

    After replica.lag.time.max.ms the leader would make itself the only ISR member, and then no
    other broker could lead.  So that write is held back, and dies with its writer.
    """
    ready = await stage.zookeeper.wait(lambda: _could_be_led_by_others(stage, tp), PATIENCE_S)
    state = stage.zookeeper.partitions[tp]
    if not ready:
        raise ClusterError(
            f"{tp} has the leader {state.leader} and the ISR {list(state.isr)}, and the brokers "
            f"{sorted(stage.zookeeper.brokers)} live: no follower could take over"
        )
    leader = broker(state.leader)
    others = [broker(n) for n in stage.cluster.brokers if broker(n) != leader]
    led = stage.zookeeper.led_by(state.leader)
    await stage.workload.burst(float(fault.params["rate"]))
    began = trio.current_time()
    try:
        join = await _sever(stage, leader, others)
    except ClusterError:
        await stage.workload.burst(0)
        raise
    paused = BROKER_LINKS in stage.cluster.lacks
    before = stage.workload.acked_by("producer-acks1")
    shrink = _shrink_of(stage, leader, tp)
    stage.links.add(shrink)
    try:
        if not paused:  # a paused follower must go on before its session runs out
            await trio.sleep(float(fault.params["seconds"]))
        with trio.move_on_after(ACKED_S):  # a busy machine may need this long for the first record
            while stage.workload.acked_by("producer-acks1") == before:
                await trio.sleep(0.05)
        now = stage.zookeeper.partitions[tp]
        alone = not paused and len(now.isr) < 2  # if paused, the error below reports it
        if now.leader != state.leader or alone:
            return Done(leader)
        await kill_member(stage, leader, led)
        # the leader's last messages are still on their way, and must not arrive after the heal
        stage.links.reset(*(pair for o in others for pair in ((leader, o), (o, leader))))
        shrink.action = Action.DROP
    finally:
        stage.links.release(shrink)
        await join()
        took_s = trio.current_time() - began
        await stage.workload.burst(0)
    acked = stage.workload.acked_by("producer-acks1") - before
    moved = await _taken_over(stage, tp, state)
    await trio.sleep(0.2)
    stage.deaths.settle(stage.zookeeper.partitions)
    effect = None
    if moved and acked:
        now = stage.zookeeper.partitions[tp]
        effect = f"{acked} records acknowledged with acks=1 by {leader}; broker-{now.leader} leads"
    await start_member(stage, leader)
    if paused and not moved:
        raise ClusterError(
            f"{' and '.join(others)} stood still for {took_s:.1f} s and left the ISR of {tp}: "
            "pause, kill and resume together have to be quicker than a broker's session"
        )
    return Done(leader, effect)


async def _taken_over(stage: ChaosStage, tp: TopicPartition, state: PartitionState) -> bool:
    """Waits until a follower leads instead of the killed leader of `state`, or none can."""

    def taken_over() -> bool:
        now = stage.zookeeper.partitions[tp]
        return now.leader not in (-1, state.leader) and now.leader_epoch > state.leader_epoch

    def left_alone() -> bool:
        now = stage.zookeeper.partitions[tp]
        return now.leader == -1 and list(now.isr) == [state.leader]

    await stage.zookeeper.wait(lambda: taken_over() or left_alone(), PATIENCE_S)
    return taken_over()
