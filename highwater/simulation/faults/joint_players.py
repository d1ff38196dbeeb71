"""Plays joints: finds the cast, carries out the acts one after the other, and undoes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import trio

from highwater.kafka import znodes
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.header import api_name
from highwater.simulation.faults.improvised import IMPROVISED, TOPICS, improvised
from highwater.simulation.faults.joint_acts import (
    ANYONE,
    CONTROLLER,
    DATA,
    FOLLOWER,
    LEADER,
    THIRD,
    Act,
    Cancel,
    CutAfterWrite,
    CutFromZooKeeper,
    Depose,
    DeposeAtWrite,
    DeposeOnly,
    Elect,
    End,
    Freeze,
    Grow,
    Heal,
    HoldNext,
    Joint,
    Kill,
    LoseAnswer,
    LosePower,
    Move,
    Pass,
    Prefer,
    Start,
    Stop,
    Thaw,
    Trim,
    UntilDelivered,
    UntilDown,
    UntilGivingUp,
    UntilHeld,
    UntilWritten,
    Write,
)
from highwater.simulation.faults.joint_admin import JointAdmin
from highwater.simulation.faults.joints import JOINTS, LAST, OF_CONSUMERS, OF_SHARES
from highwater.simulation.faults.staged_faults import Fault, NothingToBreak

if TYPE_CHECKING:
    from highwater.simulation.cluster import BrokerNode, SimCluster
    from highwater.simulation.faults.joint_writer import JointWriter, Writers
    from highwater.simulation.faults.staged_faults import StagedFaults
    from highwater.simulation.wire_tap import Hold
    from highwater.simulation.workloads.plain_client import SimClient
    from highwater.world.sim import Host

PATIENCE_S, SHORT_PATIENCE_S = 10.0, 2.0
"""How long to wait for a message or a write that may never come; the shorter time is for joints
that go on without it."""
DELIVERY_S = 0.1
ANSWERED_S = 0.02
"""By then ZooKeeper's answer has come; the news of an ISR is written after it (`isr_writer`)."""


@dataclass(slots=True)
class _Scene:
    """The state of a joint while it is played."""

    tp: TopicPartition
    cast: dict[str, BrokerNode]
    assigned: list[int]
    nursery: trio.Nursery
    """The nursery for calls that nobody waits for."""
    patience_s: float
    writer: JointWriter | None = None
    held: Hold | None = None
    delivered: float = 0.0
    """The time at which the held message arrives."""
    written: trio.Event | None = None
    moved: bool = False
    watches: list[Callable[[str, str], None]] = field(default_factory=list)
    killed: set[int] = field(default_factory=set)
    frozen: set[int] = field(default_factory=set)
    cut: list[tuple[Host, Host]] = field(default_factory=list)


class Joints:
    """Plays joints.  `writers`: make the producers for joints that write, if the run has any."""

    def __init__(
        self,
        cluster: SimCluster,
        admin: SimClient,
        tps: list[TopicPartition],
        staged: StagedFaults,
        writers: Writers | None = None,
    ) -> None:
        self._cluster = cluster
        self._admin = JointAdmin(cluster, admin, staged)
        self._tps = tps
        self._staged = staged
        self._writers = writers
        self._random = cluster.kernel.random("joints' casts")

    async def play(self, fault: Fault, _: BrokerNode) -> None:
        joint = self._planned(fault.kind) or self._improvised(fault.target)
        tp, cast, assigned = self._cast(joint)
        patience_s = SHORT_PATIENCE_S if joint.skips else PATIENCE_S
        nothing: NothingToBreak | None = None
        async with trio.open_nursery() as nursery:
            scene = _Scene(tp, cast, assigned, nursery, patience_s)
            try:
                await self._acts(scene, joint)
            except NothingToBreak as gave_up:
                nothing = gave_up
            finally:
                self._undo(scene)
            if scene.moved:
                await self._staged.reassign(tp, assigned)
        if nothing is not None:
            raise nothing

    def _planned(self, kind: str) -> Joint | None:
        return (JOINTS | LAST | OF_CONSUMERS | OF_SHARES).get(kind)

    def _improvised(self, number: str) -> Joint:
        there = {tp.topic for tp in self._cluster.rules.partitions}
        joint = improvised(number, [None, *(topic for topic in TOPICS if topic in there)])
        acts = ", ".join(map(str, joint.acts))
        self._cluster.trace.add("faults", f"{IMPROVISED} {number}: {acts}")
        return joint

    async def _acts(self, scene: _Scene, joint: Joint) -> None:
        played = 0
        for act in joint.acts:
            self._cluster.trace.add("faults", f"{scene.tp}: {act}")
            try:
                await self._act(scene, act)
            except NothingToBreak as nothing:
                if not joint.skips:
                    raise
                self._cluster.trace.add("faults", f"{scene.tp}: skipped: {nothing}")
            else:
                played += 1
        if not played:
            raise NothingToBreak("none of its acts had anything to break")

    def _cast(self, joint: Joint) -> tuple[TopicPartition, dict[str, BrokerNode], list[int]]:
        cluster, random = self._cluster, self._random
        known = [tp for tp in cluster.rules.partitions if tp.topic == joint.topic]
        tps = sorted(known) if joint.topic is not None else self._tps
        if not tps:
            raise NothingToBreak(f"there is no {joint.topic}")
        tp = random.choice(tps)
        truth, leader = cluster.rules.partitions.get(tp), cluster.leader_of(tp)
        if truth is None or truth.state is None or leader is None:
            raise NothingToBreak(f"{tp} has no leader")
        others = [b for b in truth.state.isr if b != leader and cluster.nodes[b].running]
        if len(others) < 2 or not cluster.nodes[leader].running:
            raise NothingToBreak(f"the ISR of {tp} has only {truth.state.isr}")
        random.shuffle(others)
        names = zip((LEADER, FOLLOWER, THIRD), (leader, *others[:2]), strict=True)
        return tp, {name: cluster.nodes[broker] for name, broker in names}, list(truth.assigned)

    def _who(self, scene: _Scene, role: str) -> BrokerNode:
        if role == CONTROLLER:
            found = self._cluster.controller()
        elif role == DATA:
            found = self._cluster.leader_of(self._writer(scene).tp)
        else:
            return scene.cast[role]
        if found is None:
            raise NothingToBreak(f"there is no {role}")
        return self._cluster.nodes[found]

    def _writer(self, scene: _Scene) -> JointWriter:
        if scene.writer is None:
            if self._writers is None:
                raise NothingToBreak("this run has no transactions")
            scene.writer = self._writers.coordinated_by(scene.tp)
        return scene.writer

    async def _act(self, scene: _Scene, act: Act) -> None:
        cluster = self._cluster
        match act:
            case HoldNext():
                self._hold(scene, act)
            case UntilHeld():
                await self._until_held(scene)
            case UntilDelivered():
                await trio.sleep_until(scene.delivered)
            case UntilGivingUp():
                await self._until_giving_up(scene)
            case LoseAnswer() | CutAfterWrite() | DeposeAtWrite():
                self._watch(scene, act)
            case UntilWritten():
                await self._until_written(scene)
            case Prefer(who):
                await self._staged.prefer(scene.tp, self._who(scene, who).id)
            case Elect():
                await self._admin.elect(scene.tp)
            case Pass(time):
                await trio.sleep(time.draw(self._random, cluster))
            case Depose():
                self._depose()
            case DeposeOnly(who):
                await self._depose_only(self._who(scene, who))
            case Heal():
                self._heal(scene)
            case UntilDown(who):
                await self._until_down(self._who(scene, who))
            case Write():
                await self._writer(scene).write()
            case End(commit):
                await self._writer(scene).end(commit)
            case Trim() | Grow() | Move() | Cancel():
                self._ask(scene, act)
            case _:
                self._of_one(scene, act)

    def _ask(self, scene: _Scene, act: Trim | Grow | Move | Cancel) -> None:
        """Makes an administrator's call without waiting for the answer, which may take long."""
        match act:
            case Trim():
                call = self._admin.trim(scene.tp, self._random)
            case Grow():
                call = self._admin.grow(act.topic or scene.tp.topic)
            case Move(names):
                scene.moved = True
                target = [self._who(scene, who).id for who in names]
                call = self._admin.move(scene.tp, target)
            case Cancel():
                call = self._admin.move(scene.tp, None)
        scene.nursery.start_soon(call)

    def _depose(self) -> None:
        if self._cluster.controller() is not None:
            self._cluster.simulation.zookeeper.delete(znodes.CONTROLLER)

    async def _depose_only(self, node: BrokerNode) -> None:
        with trio.move_on_after(PATIENCE_S):
            while (controller := self._cluster.controller()) in (None, node.id):
                if controller is not None:
                    self._depose()
                await trio.sleep(0.1)
            return
        raise NothingToBreak(f"nobody but {node.name} becomes the controller")

    def _of_one(
        self, scene: _Scene, act: Kill | Start | Stop | LosePower | Freeze | Thaw | CutFromZooKeeper
    ) -> None:
        cluster, node = self._cluster, self._who(scene, act.who)
        if not node.running and not isinstance(act, Start | LosePower):
            raise NothingToBreak(f"{node.name} is down")
        if isinstance(act, LosePower) and node.running:
            raise NothingToBreak(f"{node.name} runs again")
        match act:
            case Kill():
                scene.killed.add(node.id)
                cluster.kill(node.id)
            case Start():
                scene.killed.discard(node.id)
                cluster.start(node.id)
            case Stop():
                scene.killed.add(node.id)
                cluster.stop(node.id)
            case LosePower():
                cluster.power_loss(node.id)
                cluster.simulation.power_on(node.host)
            case Freeze():
                scene.frozen.add(node.id)
                cluster.freeze(node.id)
            case Thaw():
                scene.frozen.discard(node.id)
                cluster.thaw(node.id)
            case CutFromZooKeeper():
                self._cut(scene, node)

    def _cut(self, scene: _Scene, node: BrokerNode) -> None:
        zookeeper = self._cluster.simulation.zookeeper.host
        scene.cut += [(node.host, zookeeper), (zookeeper, node.host)]
        for one, other in scene.cut:
            self._cluster.simulation.fabric.cut(one, other)

    async def _until_down(self, node: BrokerNode) -> None:
        with trio.move_on_after(PATIENCE_S):
            while node.running:
                await trio.sleep(0.01)
        if node.running:
            self._cluster.kill(node.id)
            raise NothingToBreak(f"{node.name} does not stop")

    def _hold(self, scene: _Scene, act: HoldNext) -> None:
        source, target = (
            None if who == ANYONE else self._who(scene, who).name
            for who in (act.source, act.target)
        )

        def wanted(asks: str, answers: str) -> bool:
            return source in (None, asks) and target in (None, answers)

        if scene.held is not None:
            self._cluster.tap.release(scene.held)
        seconds = act.time.draw(self._random, self._cluster)
        scene.held = self._cluster.tap.hold(act.api_key, act.what, seconds, wanted)

    async def _until_held(self, scene: _Scene) -> None:
        hold = scene.held
        if hold is None:
            raise NothingToBreak("nothing was to be held: that act was skipped")
        with trio.move_on_after(scene.patience_s):
            while not hold.fired:
                await trio.sleep(0.01)
        if not hold.fired:
            raise NothingToBreak(f"no {api_name(hold.api_key)} came by")
        scene.delivered = trio.current_time() + hold.seconds + DELIVERY_S

    async def _until_giving_up(self, scene: _Scene) -> None:
        with trio.move_on_after(scene.patience_s):
            while not self._cluster.requested.giving_up:
                await trio.sleep(0.01)
            return
        raise NothingToBreak("no member is to give up partitions")

    def _watch(self, scene: _Scene, act: LoseAnswer | CutAfterWrite | DeposeAtWrite) -> None:
        """Arranges for something to happen at the next write of one kind, and only then."""
        zookeeper, timeline = self._cluster.simulation.zookeeper, self._cluster.kernel.timeline
        written = scene.written = trio.Event()

        def of_writer(changed: str, author: str) -> Callable[[], None] | None:
            assert not isinstance(act, DeposeAtWrite)
            node = self._who(scene, act.who)
            services = node.services
            if changed != znodes.state_path(scene.tp) or not author.startswith(f"{node.name}."):
                return None
            if services is None or services.session is None:
                return None
            if isinstance(act, CutAfterWrite):
                return partial(self._cut, scene, node)
            client = zookeeper.clients.get(services.session.session_id)
            return client.drop if client is not None else None

        def depose(changed: str, _: str) -> Callable[[], None] | None:
            return self._depose if changed == znodes.topic_path(scene.tp.topic) else None

        what = depose if isinstance(act, DeposeAtWrite) else of_writer
        after_s = ANSWERED_S if isinstance(act, CutAfterWrite) else 0.0

        def wrote(changed: str, author: str) -> None:
            if not written.is_set() and (done := what(changed, author)) is not None:
                timeline.at(timeline.now + after_s, done)
                written.set()

        zookeeper.on_write.append(wrote)
        scene.watches.append(wrote)

    async def _until_written(self, scene: _Scene) -> None:
        if scene.written is None:
            raise NothingToBreak("no write was awaited: that act was skipped")
        with trio.move_on_after(scene.patience_s):
            await scene.written.wait()
        if not scene.written.is_set():
            raise NothingToBreak(f"nothing was written of {scene.tp}")

    def _heal(self, scene: _Scene) -> None:
        for one, other in scene.cut:
            self._cluster.simulation.fabric.heal(one, other)
        scene.cut.clear()

    def _undo(self, scene: _Scene) -> None:
        cluster = self._cluster
        if scene.held is not None:
            cluster.tap.release(scene.held)
        if scene.writer is not None:
            scene.writer.close()
        for watch in scene.watches:
            cluster.simulation.zookeeper.on_write.remove(watch)
        self._heal(scene)
        for broker in sorted(scene.frozen):
            cluster.thaw(broker)
        for broker in sorted(scene.killed):
            cluster.start(broker)
