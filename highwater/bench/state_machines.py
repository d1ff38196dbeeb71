"""The pure machines alone: the steps a second of a partition and of the controller.

The figure includes nothing else: no network, no disk, no ZooKeeper, no task.  The partition leads
two followers, and its log is a counter (`_CountedLog`).  The controller is first run against a
ZooKeeper in memory, through brokers that die, come back and rejoin the ISRs, and every event and
answer to it is recorded; then a new machine gets the same ones, and only its steps are timed.  At
the end both must reach the expected state: work that was not done is not counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from highwater.broker.log.epochs import EpochCache
from highwater.broker.log.parts import Origin
from highwater.broker.replica.partition import LeaderAndIsr, Partition
from highwater.controller.rules.effects import (
    Children,
    Get,
    Pause,
    ProbeBrokers,
    Question,
    ReadOp,
    ReadZk,
    SendLeaderAndIsr,
    SendUpdateMetadata,
    WriteZk,
)
from highwater.controller.rules.events import (
    Answer,
    Elected,
    Event,
    LeaderAndIsrAnswered,
    UpdateMetadataAnswered,
    of_watch,
)
from highwater.controller.rules.machine import Machine
from highwater.controller.rules.state import Settings
from highwater.kafka import znodes
from highwater.kafka.errors import ErrorCode
from highwater.kafka.replica_assignment import ReplicaAssignment
from highwater.kafka.types import (
    BrokerId,
    ControllerEpoch,
    Endpoint,
    LeaderEpoch,
    TopicPartition,
    ZkVersion,
)
from highwater.world.api import Check, Create, NoNode, SetData, ZkError
from highwater.world.sim.zookeeper_server import Ensemble

LAG_MS = 30_000
_SHRINK_EVERY = 100


class WrongResult(Exception):
    """A machine did not reach the expected state: its figure would mean nothing."""


# ---- the partition


class _CountedLog:
    """The interface of a log for a partition, without a log."""

    def __init__(self) -> None:
        self.log_start_offset = self.log_end_offset = self.recovery_point = 0
        self.epochs = EpochCache((), lambda _: None)
        self.config = SimpleNamespace(flush_messages=1 << 62)
        self.high_watermark = 0

    def append_as_leader(self, *_: object, **__: object) -> object:
        self.log_end_offset += 1
        return None

    def update_high_watermark(self, offset: int) -> None:
        self.high_watermark = offset


def partition_steps(cycles: int) -> float:
    """Steps a second: an append, a fetch of each follower, and the check of the commit; now and
    then a follower falls behind, leaves the ISR, and rejoins it."""
    tp = TopicPartition("bench", 0)
    partition = Partition(tp, BrokerId(1), LAG_MS, lambda _: True)
    log: Any = _CountedLog()
    partition.host(log, 0, 1)
    state = LeaderAndIsr(
        BrokerId(1), LeaderEpoch(1), ControllerEpoch(1), (1, 2, 3), ZkVersion(0), (1, 2, 3)
    )
    partition.make_leader(state, 0)
    now = version = steps = 0
    began = time.process_time()
    for cycle in range(cycles):
        now += 1
        partition.append(memoryview(b""), -1, now, now, Origin.COORDINATOR)
        end = log.log_end_offset
        partition.follower_fetched(2, end, 0, now)
        steps += 4
        if cycle % _SHRINK_EVERY == 0:
            now += LAG_MS + 1
            partition.follower_fetched(2, end, 0, now)
            shrink = partition.maybe_shrink(now)
            assert shrink is not None
            version += 1
            partition.isr_settled(shrink, ZkVersion(version), now)
            _, expand = partition.follower_fetched(3, end, 0, now)
            assert expand is not None
            version += 1
            partition.isr_settled(expand, ZkVersion(version), now)
            steps += 4
        else:
            partition.follower_fetched(3, end, 0, now)
        if partition.committed(end, 0) is not ErrorCode.NONE:
            raise WrongResult(f"the append of cycle {cycle} was not committed: HW {partition}")
    seconds = time.process_time() - began
    if partition.high_watermark != cycles or sorted(partition.isr.members) != [1, 2, 3]:
        raise WrongResult(f"HW {partition.high_watermark} after {cycles} appends")
    return steps / seconds


# ---- the controller


class _Recording:
    """A controller's life against a ZooKeeper in memory, and all its recorded input."""

    def __init__(self, brokers: int, partitions: int) -> None:
        self.settings = Settings(broker_id=BrokerId(1), auto_leader_rebalance_enable=False)
        self.machine = Machine(self.settings)
        self.told: list[Event] = []
        self.zk = Ensemble()
        self._tool = self.zk.open_session(10_000).id
        self._sessions: dict[int, int] = {}
        for path in znodes.PERSISTENT_PATHS:
            self._make(path)
        self._write(Create(znodes.CONTROLLER_EPOCH, b"1"))
        for broker in range(1, brokers + 1):
            self.start(broker)
        replicas = tuple(BrokerId(b) for b in range(1, brokers + 1))
        self.tps = [TopicPartition("bench", p) for p in range(partitions)]
        topic = {
            tp.partition: ReplicaAssignment(replicas[i % brokers :] + replicas[: i % brokers])
            for i, tp in enumerate(self.tps)
        }
        data = znodes.encode_topic(znodes.TopicState(topic))
        self._write(Create(znodes.topic_path("bench"), data))
        self._session = self.zk.open_session(6_000).id
        self._do(Elected(ControllerEpoch(1), ZkVersion(0)))
        self.settle()

    def _make(self, path: str) -> None:
        parts = path.strip("/").split("/")
        for n in range(1, len(parts) + 1):
            parent = "/" + "/".join(parts[:n])
            if parent not in self.zk.nodes:
                self._write(Create(parent))

    def _write(self, op: Any) -> None:
        self.zk.write(self._tool, op)

    # -- what happens to the cluster

    def start(self, broker: int) -> None:
        session = self._sessions[broker] = self.zk.open_session(6_000).id
        data = znodes.encode_broker([Endpoint("PLAINTEXT", "PLAINTEXT", f"b{broker}", 1)], None, 0)
        self.zk.write(session, Create(znodes.broker_path(broker), data, ephemeral=True))

    def kill(self, broker: int) -> None:
        self.zk.end_session(self._sessions.pop(broker))

    def rejoin(self, broker: int) -> None:
        """Lets the leaders take a broker back into their ISRs."""
        joined = []
        for tp in self.tps:
            state = self.state(tp)
            if broker not in state.isr and state.leader >= 0:
                new = state._replace(isr=(*state.isr, BrokerId(broker)))
                data = znodes.encode_partition_state(new)
                self._write(SetData(znodes.state_path(tp), data, state.zk_version))
                joined.append(tp)
        data = znodes.encode_isr_change(joined)
        self._write(Create(znodes.ISR_CHANGE_PREFIX, data, sequential=True))

    def state(self, tp: TopicPartition) -> znodes.PartitionState:
        node = self.zk.nodes[znodes.state_path(tp)]
        return znodes.decode_partition_state(tp, node.data, node.version)

    # -- the machine

    def settle(self) -> None:
        """Tells the controller of all fired watches, until there are none."""
        while True:
            fired = [w for s, w in self.zk.take_fired() if s == self._session]
            events = dict.fromkeys(e for w in fired if (e := of_watch(w)) is not None)
            if not events:
                return
            for event in events:
                self._do(event)

    def _do(self, event: Event) -> None:
        """Carries out one event, then the brokers' answers to its orders."""
        waiting: list[Event] = [event]
        while waiting:
            next_event = waiting.pop(0)
            self.told.append(next_event)
            answers: list[Event] = []
            for effect in self.machine.step(next_event):
                if isinstance(effect, Question):
                    waiting.insert(0, Answer(self._answer(effect)))
                elif isinstance(effect, SendLeaderAndIsr):
                    answers.append(
                        LeaderAndIsrAnswered(
                            effect.broker_id,
                            effect.broker_epoch,
                            0,
                            {p.tp: 0 for p in effect.partitions},
                        )
                    )
                elif isinstance(effect, SendUpdateMetadata):
                    answers += [UpdateMetadataAnswered(b, e, 0) for b, e in effect.brokers]
            waiting += answers

    def _answer(self, question: Question) -> Any:
        match question:
            case ReadZk(ops):
                return [self._read(op) for op in ops]
            case WriteZk(groups):
                return [self._multi(group) for group in groups]
            case ProbeBrokers():
                return {}
            case Pause():
                return None

    def _read(self, op: ReadOp) -> Any:
        try:
            match op:
                case Get(path, watch):
                    return self.zk.get(self._session, path, watch)
                case Children(path, watch):
                    return self.zk.children(self._session, path, watch)
                case _:
                    return self.zk.exists(self._session, op.path, op.watch)
        except NoNode:
            return None

    def _multi(self, group: Any) -> Any:
        try:
            guard = Check(znodes.CONTROLLER_EPOCH, 0)
            return self.zk.multi(self._session, [guard, *group])[1:]
        except ZkError as error:
            return error


def recorded(deaths: int, brokers: int = 3, partitions: int = 1) -> tuple[list[Event], Settings]:
    """A controller's input while brokers died and came back, one after the other."""
    life = _Recording(brokers, partitions)
    for n in range(deaths):
        broker = n % brokers + 1
        steps: tuple[Callable[[int], None], ...] = (life.kill, life.start, life.rejoin)
        for step in steps:
            step(broker)
            life.settle()
    for tp in life.tps:
        state = life.state(tp)
        if len(state.isr) != brokers or state.leader_epoch < deaths // brokers:
            raise WrongResult(f"{tp} ended as {state} after {deaths} deaths")
    return life.told, life.settings


def controller_steps(told: list[Event], settings: Settings) -> float:
    """Steps a second of a new machine with the same input."""
    machine = Machine(settings)
    step = machine.step
    began = time.process_time()
    for event in told:
        step(event)
    seconds = time.process_time() - began
    if machine.busy:
        raise WrongResult("the controller still waits for an answer")
    return len(told) / seconds
