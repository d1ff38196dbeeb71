"""Joint events: things that break a promise only where they meet, made to meet.

Chance alone seldom brings three events together within a few milliseconds.  A joint is a short list
of acts, data and no code: who plays is drawn when it begins (the leader, a follower and a third
replica of one partition, the controller), and how long each act takes is drawn from its range.
`highwater sim --joints` draws joints by the seed; the faults of the seed's plan go on beside them.

An act that waits for something that does not come gives the joint up ("nothing to break").  At its
end a joint undoes its own acts: who was killed is started, who stands still goes on, links heal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import trio

from highwater.kafka import znodes
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.header import api_name
from highwater.simulation.faults.staged_faults import Fault, NothingToBreak
from highwater.simulation.wire_tap import (
    ANSWER,
    FETCH,
    LEADER_AND_ISR,
    OFFSETS_FOR_LEADER_EPOCH,
    REQUEST,
    Hold,
)

if TYPE_CHECKING:
    from highwater.simulation.cluster import BrokerNode, SimCluster
    from highwater.simulation.faults.staged_faults import StagedFaults
    from highwater.simulation.workloads.plain_client import SimClient
    from highwater.world.chance import Random
    from highwater.world.sim import Host

WRITE_TXN_MARKERS = 27
TRANSACTIONS = "__transaction_state"
PATIENCE_S = 10.0
EVERY_S = 5.0
LEADER, FOLLOWER, THIRD, CONTROLLER, ANYONE = "leader", "follower", "third", "controller", "anyone"


@dataclass(frozen=True, slots=True)
class Time:
    """A length that is drawn: between two multiples of a second, of replica.lag.time.max.ms, or of
    the session's time-out."""

    least: float
    most: float
    unit: str = "seconds"

    def draw(self, random: Random, cluster: SimCluster) -> float:
        shape = cluster.shape
        unit = {
            "seconds": 1.0,
            "lag": shape.lag_ms / 1000,
            "session": shape.session_timeout_ms / 1000,
        }[self.unit]
        return random.uniform(self.least, self.most) * unit


@dataclass(frozen=True, slots=True)
class OfOne:
    """What happens to one of the cast, or what one does."""

    who: str


@dataclass(frozen=True, slots=True)
class HoldNext:
    """The next message of that API from one to another is on its way for so long."""

    api_key: int
    what: str
    source: str
    target: str
    time: Time


@dataclass(frozen=True, slots=True)
class UntilHeld:
    """Goes on once the message is held."""


class LoseAnswer(OfOne):
    """The next write of the partition's state by that broker takes place in ZooKeeper, and its
    connection ends before the answer: it cannot know."""


@dataclass(frozen=True, slots=True)
class UntilLost:
    """Goes on once such a write has taken place."""


class Prefer(OfOne):
    """Another order of the replicas: a write of the controller, with a new leader epoch."""


@dataclass(frozen=True, slots=True)
class Elect:
    """The preferred leader is elected."""


class Kill(OfOne):
    """kill -9."""


class Start(OfOne):
    """It starts again, on its data."""


class Stop(OfOne):
    """A controlled shutdown."""


class UntilDown(OfOne):
    """Goes on once it has ended."""


class LosePower(OfOne):
    """Its machine loses power, and gets it back; the broker stays down."""


class Freeze(OfOne):
    """It stands still, and its sockets take what comes."""


class Thaw(OfOne):
    """It goes on."""


class CutFromZooKeeper(OfOne):
    """No bytes between it and ZooKeeper."""


@dataclass(frozen=True, slots=True)
class Heal:
    """The links that this joint cut."""


@dataclass(frozen=True, slots=True)
class Depose:
    """The controller's znode is deleted."""


@dataclass(frozen=True, slots=True)
class Pass:
    """Time passes."""

    time: Time


Act = (
    HoldNext | UntilHeld | LoseAnswer | UntilLost | Prefer | Elect | Kill | Start | Stop | UntilDown
    | LosePower | Freeze | Thaw | CutFromZooKeeper | Heal | Depose | Pass
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Joint:
    """`topic`: the partition is one of this topic; without, one of the workload's."""

    acts: tuple[Act, ...]
    topic: str | None = None


def _lead(who: str) -> tuple[Act, ...]:
    return Prefer(who), Pass(Time(0.05, 0.3)), Elect()


JOINTS = {
    "there and back, and an answer between": Joint(
        (
            *(Prefer(FOLLOWER), Pass(Time(0.2, 0.4))),
            *(HoldNext(FETCH, ANSWER, THIRD, LEADER, Time(0.6, 1.4, "lag")), UntilHeld()),
            *(Elect(), Pass(Time(0.0, 1.0)), *_lead(LEADER), Pass(Time(0.0, 1.0))),
        )
    ),
    "an unknown write, the controller's, an election": Joint(
        (
            *(LoseAnswer(LEADER), Freeze(FOLLOWER), UntilLost(), Prefer(THIRD)),
            *(Pass(Time(0.0, 0.3)), Elect(), Pass(Time(0.0, 1.0)), Thaw(FOLLOWER)),
        )
    ),
    "a marker over a new coordinator": Joint(
        (
            *(HoldNext(WRITE_TXN_MARKERS, REQUEST, LEADER, ANYONE, Time(1.0, 6.0)), UntilHeld()),
            *(Kill(LEADER), Pass(Time(1.0, 8.0)), Start(LEADER), Pass(Time(0.5, 1.0))),
        ),
        TRANSACTIONS,
    ),
    "a marker over a moved coordinator": Joint(
        (
            *(HoldNext(WRITE_TXN_MARKERS, REQUEST, LEADER, ANYONE, Time(1.0, 6.0)), UntilHeld()),
            *(*_lead(FOLLOWER), Pass(Time(2.0, 6.0))),
        ),
        TRANSACTIONS,
    ),
    "a marker's answer over a moved coordinator": Joint(
        (
            *(HoldNext(WRITE_TXN_MARKERS, ANSWER, LEADER, ANYONE, Time(1.0, 6.0)), UntilHeld()),
            *(*_lead(FOLLOWER), Pass(Time(0.5, 3.0)), *_lead(LEADER)),
        ),
        TRANSACTIONS,
    ),
    "a leader wakes after its session": Joint(
        (
            *(Freeze(LEADER), Pass(Time(0.5, 0.95, "session")), CutFromZooKeeper(LEADER)),
            *(Thaw(LEADER), Pass(Time(0.2, 0.9, "session")), Heal(), Pass(Time(0.0, 1.0))),
        )
    ),
    "a role that comes late, after two elections": Joint(
        (
            HoldNext(LEADER_AND_ISR, REQUEST, CONTROLLER, THIRD, Time(0.5, 4.0)),
            *(*_lead(FOLLOWER), UntilHeld(), Pass(Time(0.0, 1.0)), *_lead(LEADER)),
        )
    ),
    "a restart before the controller has its answer": Joint(
        (
            HoldNext(LEADER_AND_ISR, ANSWER, CONTROLLER, FOLLOWER, Time(0.5, 3.0)),
            *(*_lead(FOLLOWER), UntilHeld(), Kill(FOLLOWER), Pass(Time(0.0, 0.1))),
            *(Start(FOLLOWER), Pass(Time(0.5, 2.0))),
        )
    ),
    "the end of an epoch is told across an election": Joint(
        (
            HoldNext(OFFSETS_FOR_LEADER_EPOCH, ANSWER, FOLLOWER, LEADER, Time(0.3, 2.0)),
            *(Kill(FOLLOWER), Pass(Time(0.5, 2.0)), Start(FOLLOWER), UntilHeld()),
            *(*_lead(THIRD), Pass(Time(0.3, 1.0))),
        )
    ),
    "the power goes after an orderly stop": Joint(
        (
            *(Stop(LEADER), UntilDown(LEADER), LosePower(LEADER), Pass(Time(0.0, 1.0))),
            *(Start(LEADER), Pass(Time(0.5, 2.0))),
        )
    ),
    "a controller is replaced between its write and its request": Joint(
        (
            HoldNext(LEADER_AND_ISR, REQUEST, CONTROLLER, FOLLOWER, Time(0.5, 4.0)),
            *(Prefer(FOLLOWER), UntilHeld(), Depose(), Pass(Time(0.0, 1.0)), Elect()),
            Pass(Time(0.5, 2.0)),
        )
    ),
}


def joints(random: Random, seconds: float) -> list[Fault]:
    """A joint every few seconds, one after the other."""
    planned = []
    at = random.uniform(0.5, EVERY_S)
    while at < seconds * 0.9:
        planned.append(Fault(round(at, 3), random.choice(list(JOINTS)), "any", 0.0))
        at += 1.0 + random.expovariate(1 / EVERY_S)
    return planned


@dataclass(slots=True)
class _Scene:
    """One joint under way."""

    tp: TopicPartition
    cast: dict[str, BrokerNode]
    held: Hold | None = None
    lost: trio.Event | None = None
    watches: list[Callable[[str, str], None]] = field(default_factory=list)
    killed: set[int] = field(default_factory=set)
    frozen: set[int] = field(default_factory=set)
    cut: list[tuple[Host, Host]] = field(default_factory=list)


class Joints:
    """Plays joints."""

    def __init__(
        self, cluster: SimCluster, admin: SimClient, tps: list[TopicPartition], staged: StagedFaults
    ) -> None:
        self._cluster = cluster
        self._admin = admin
        self._tps = tps
        self._staged = staged
        self._random = cluster.kernel.random("joints' casts")

    async def play(self, fault: Fault, _: BrokerNode) -> None:
        joint = JOINTS[fault.kind]
        scene = self._cast(joint)
        try:
            for act in joint.acts:
                self._cluster.trace.add("faults", f"{scene.tp}: {act}")
                await self._act(scene, act)
        finally:
            self._undo(scene)

    def _cast(self, joint: Joint) -> _Scene:
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
        return _Scene(tp, {name: cluster.nodes[broker] for name, broker in names})

    def _who(self, scene: _Scene, role: str) -> BrokerNode:
        if role != CONTROLLER:
            return scene.cast[role]
        found = self._cluster.controller()
        if found is None:
            raise NothingToBreak("there is no controller")
        return self._cluster.nodes[found]

    async def _act(self, scene: _Scene, act: Act) -> None:
        cluster = self._cluster
        match act:
            case HoldNext():
                scene.held = self._hold(scene, act)
            case UntilHeld():
                await self._until_held(scene)
            case LoseAnswer(who):
                scene.lost = self._lose_answer(scene, self._who(scene, who))
            case UntilLost():
                await self._until_lost(scene)
            case Prefer(who):
                await self._staged.prefer(scene.tp, self._who(scene, who).id)
            case Elect():
                await self._staged.admin_call(self._admin.elect_preferred(scene.tp))
            case Pass(time):
                await trio.sleep(time.draw(self._random, cluster))
            case Depose():
                if cluster.controller() is not None:
                    cluster.simulation.zookeeper.delete(znodes.CONTROLLER)
            case Heal():
                self._heal(scene)
            case UntilDown(who):
                await self._until_down(self._who(scene, who))
            case _:
                self._of_one(scene, act)

    def _of_one(
        self, scene: _Scene, act: Kill | Start | Stop | LosePower | Freeze | Thaw | CutFromZooKeeper
    ) -> None:
        cluster, node = self._cluster, self._who(scene, act.who)
        if not node.running and not isinstance(act, Start | LosePower):
            raise NothingToBreak(f"{node.name} is down")
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
                zookeeper = cluster.simulation.zookeeper.host
                scene.cut += [(node.host, zookeeper), (zookeeper, node.host)]
                for one, other in scene.cut:
                    cluster.simulation.fabric.cut(one, other)

    async def _until_down(self, node: BrokerNode) -> None:
        with trio.move_on_after(PATIENCE_S):
            while node.running:
                await trio.sleep(0.01)
        if node.running:
            self._cluster.kill(node.id)
            raise NothingToBreak(f"{node.name} does not stop")

    def _hold(self, scene: _Scene, act: HoldNext) -> Hold:
        source = self._who(scene, act.source).name
        target = None if act.target == ANYONE else self._who(scene, act.target).name

        def wanted(asks: str, answers: str) -> bool:
            return asks == source and target in (None, answers)

        seconds = act.time.draw(self._random, self._cluster)
        return self._cluster.tap.hold(act.api_key, act.what, seconds, wanted)

    async def _until_held(self, scene: _Scene) -> None:
        hold = scene.held
        assert hold is not None
        with trio.move_on_after(PATIENCE_S):
            while not hold.fired:
                await trio.sleep(0.01)
        if not hold.fired:
            raise NothingToBreak(f"no {api_name(hold.api_key)} came by")

    def _lose_answer(self, scene: _Scene, node: BrokerNode) -> trio.Event:
        zookeeper, timeline = self._cluster.simulation.zookeeper, self._cluster.kernel.timeline
        path, lost = znodes.state_path(scene.tp), trio.Event()

        def wrote(changed: str, author: str) -> None:
            services = node.services
            if lost.is_set() or changed != path or not author.startswith(f"{node.name}."):
                return
            if services is not None and services.session is not None:
                client = zookeeper.clients.get(services.session.session_id)
                if client is not None:
                    timeline.at(timeline.now, client.drop)
                    lost.set()

        zookeeper.on_write.append(wrote)
        scene.watches.append(wrote)
        return lost

    async def _until_lost(self, scene: _Scene) -> None:
        assert scene.lost is not None
        with trio.move_on_after(PATIENCE_S):
            await scene.lost.wait()
        if not scene.lost.is_set():
            raise NothingToBreak(f"nothing was written of {scene.tp}")

    def _heal(self, scene: _Scene) -> None:
        for one, other in scene.cut:
            self._cluster.simulation.fabric.heal(one, other)
        scene.cut.clear()

    def _undo(self, scene: _Scene) -> None:
        cluster = self._cluster
        if scene.held is not None:
            cluster.tap.release(scene.held)
        for watch in scene.watches:
            cluster.simulation.zookeeper.on_write.remove(watch)
        self._heal(scene)
        for broker in sorted(scene.frozen):
            cluster.thaw(broker)
        for broker in sorted(scene.killed):
            cluster.start(broker)
