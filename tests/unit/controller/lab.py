"""A machine, a ZooKeeper in memory and nothing else: the rig of tests of the controller's rules.

`Lab.do` gives the machine an event, answers its questions from the ensemble and collects its
orders; `settle` brings the watches that fired, as events, until there are none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from highwater.controller.rules.effects import (
    Children,
    Get,
    GroupResult,
    LeaderAndIsrPartition,
    Order,
    Pause,
    ProbeBrokers,
    Question,
    ReadOp,
    ReadZk,
    SendLeaderAndIsr,
    SendStopReplica,
    SendUpdateMetadata,
    WriteZk,
)
from highwater.controller.rules.events import (
    Answer,
    Elected,
    Event,
    StopReplicaAnswered,
    UpdateMetadataAnswered,
    of_watch,
)
from highwater.controller.rules.machine import Machine
from highwater.controller.rules.state import Settings
from highwater.kafka import znodes
from highwater.kafka.features import SUPPORTED
from highwater.kafka.replica_assignment import ReplicaAssignment
from highwater.kafka.types import BrokerId, ControllerEpoch, Endpoint, TopicPartition, ZkVersion
from highwater.kafka.znodes import PartitionState, TopicState
from highwater.world.api import Check, Create, NoNode, SetData, ZkError, ZkOp
from highwater.world.sim.zookeeper_server import Ensemble


def tp(name: str = "t", partition: int = 0) -> TopicPartition:
    return TopicPartition(name, partition)


def ids(*brokers: int) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(b) for b in brokers)


class Moved(Exception):
    """A write of the machine found another controller epoch."""


class Lab:
    def __init__(
        self, *brokers: int, settings: Settings | None = None, old: Sequence[int] = ()
    ) -> None:
        self.zk = Ensemble()
        self.tool = self.zk.open_session(10_000).id
        self.sessions: dict[int, int] = {}
        self.silent: dict[BrokerId, bool] = {}
        self.orders: list[Order] = []
        self.questions: list[Question] = []
        self.pauses = 0
        self.told: list[UpdateMetadataAnswered] = []
        """Answers of brokers that a topic goes, which `settle` handles."""
        self.deaf: set[int] = set()
        """Brokers that do not answer so."""
        self.old = set(old)
        """Brokers that announce no features."""
        self.before_write: Callable[[], object] | None = None
        self.settings = settings or Settings(
            broker_id=BrokerId(1), auto_leader_rebalance_enable=False
        )
        for path in znodes.PERSISTENT_PATHS:
            self.make(path)
        self.write(Create(znodes.CONTROLLER_EPOCH, b"0"))
        for broker in brokers:
            self.start(broker)
        self.machine = Machine(self.settings)
        self.session = 0
        self.epoch_version = 0

    # ---- the world outside; `settle` lets the controller see it

    def make(self, path: str) -> None:
        parts = path.strip("/").split("/")
        for n in range(1, len(parts) + 1):
            parent = "/" + "/".join(parts[:n])
            if self.zk.exists(self.tool, parent, False) is None:
                self.write(Create(parent))

    def write(self, op: ZkOp) -> Any:
        return self.zk.write(self.tool, op)

    def start(self, broker: int, port: int = 9092) -> Lab:
        session = self.sessions[broker] = self.zk.open_session(6_000).id
        endpoint = Endpoint("PLAINTEXT", "PLAINTEXT", f"b{broker}", port)
        announced = {} if broker in self.old else SUPPORTED
        data = znodes.encode_broker([endpoint], None, 0, features=announced)
        self.zk.write(session, Create(znodes.broker_path(broker), data, ephemeral=True))
        return self

    def kill(self, broker: int) -> Lab:
        self.zk.end_session(self.sessions.pop(broker))
        return self

    def bounce(self, broker: int) -> Lab:
        """Gone and back before the controller has looked."""
        self.kill(broker)
        self.start(broker)
        return self

    def create_topic(self, name: str, *replicas: tuple[int, ...]) -> Lab:
        partitions = {p: ReplicaAssignment(ids(*r)) for p, r in enumerate(replicas)}
        data = znodes.encode_topic(TopicState(partitions))
        self.write(Create(znodes.topic_path(name), data))
        return self

    def add_partitions(self, name: str, *replicas: tuple[int, ...]) -> Lab:
        known = self.topic(name)
        first = len(known.partitions)
        for p, r in enumerate(replicas):
            known.partitions[first + p] = ReplicaAssignment(ids(*r))
        self.write(SetData(znodes.topic_path(name), znodes.encode_topic(known)))
        return self

    def delete_topic(self, name: str) -> Lab:
        self.write(Create(znodes.delete_topic_path(name)))
        return self

    def configure(self, kind: str, name: str, **config: str) -> Lab:
        dotted = {k.replace("_", "."): v for k, v in config.items()}
        self.make(f"/config/{kind}")
        self.write(Create(znodes.config_path(kind, name), znodes.encode_config(dotted)))
        return self

    def leader_writes_isr(self, partition: TopicPartition, *isr: int, notify: bool = True) -> Lab:
        """Writes as the leader does: conditionally, and with a notification."""
        now = self.state(partition)
        new = now._replace(isr=ids(*isr))
        path = znodes.state_path(partition)
        self.write(SetData(path, znodes.encode_partition_state(new), now.zk_version))
        if notify:
            data = znodes.encode_isr_change([partition])
            self.write(Create(znodes.ISR_CHANGE_PREFIX, data, sequential=True))
        return self

    # ---- the contents of ZooKeeper

    def state(self, partition: TopicPartition) -> PartitionState:
        data, stat = self.zk.get(self.tool, znodes.state_path(partition), False)
        return znodes.decode_partition_state(partition, data, stat.version)

    def topic(self, name: str) -> TopicState:
        return znodes.decode_topic(name, self.zk.get(self.tool, znodes.topic_path(name), False)[0])

    def exists(self, path: str) -> bool:
        return self.zk.exists(self.tool, path, False) is not None

    def children(self, path: str) -> list[str]:
        return self.zk.children(self.tool, path, False)

    # ---- the controller

    def elect(self) -> list[Order]:
        """A new controller takes over; returns its orders."""
        if self.session:
            self.zk.end_session(self.session)
        self.session = self.zk.open_session(6_000).id
        data, stat = self.zk.get(self.tool, znodes.CONTROLLER_EPOCH, False)
        epoch = ControllerEpoch(int(data) + 1)
        self.write(SetData(znodes.CONTROLLER_EPOCH, str(epoch).encode(), stat.version))
        self.epoch_version = stat.version + 1
        self.machine = Machine(self.settings)
        first = self.do(Elected(epoch, ZkVersion(self.epoch_version)))
        return first + self.settle()

    def do(self, event: Event) -> list[Order]:
        """Runs one event to its end."""
        orders: list[Order] = []
        next_event: Event | None = event
        while next_event is not None:
            effects = self.machine.step(next_event)
            next_event = None
            for effect in effects:
                if isinstance(effect, Question):
                    assert next_event is None, "two questions in one step"
                    if isinstance(effect, Pause):
                        self.pauses += 1
                    else:
                        self.questions.append(effect)
                    next_event = Answer(self._answer(effect))
                else:
                    assert next_event is None, "an order after the question"
                    orders.append(effect)
        assert not self.machine.busy
        self.orders += orders
        self.told += [
            UpdateMetadataAnswered(*broker, 0, order.gone)
            for order in orders
            if isinstance(order, SendUpdateMetadata) and order.gone
            for broker in order.brokers
        ]
        return orders

    def settle(self) -> list[Order]:
        """Handles all watches that have fired, and answers of brokers that a topic goes."""
        orders: list[Order] = []
        while True:
            fired = [w for s, w in self.zk.take_fired() if s == self.session]
            events = dict.fromkeys(e for w in fired if (e := of_watch(w)) is not None)
            if not events:
                events = dict.fromkeys(e for e in self.told if e.broker_id not in self.deaf)
                self.told = [e for e in self.told if e.broker_id in self.deaf]
            if not events:
                return orders
            for event in events:
                orders += self.do(event)

    def answer_stop_replicas(self, orders: Sequence[Order], *, error: int = 0) -> list[Order]:
        """Lets the brokers answer the StopReplicas in these orders; then handles all watches."""
        given: list[Order] = []
        for order in orders:
            if isinstance(order, SendStopReplica):
                deleted = {p.tp: error for p in order.partitions if p.delete}
                given += self.do(
                    StopReplicaAnswered(order.broker_id, order.broker_epoch, 0, deleted)
                )
        return given + self.settle()

    def _answer(self, question: Question) -> Any:
        match question:
            case ReadZk(ops):
                return [self._read(op) for op in ops]
            case WriteZk(groups):
                if self.before_write is not None:
                    hook, self.before_write = self.before_write, None
                    hook()
                return [self._multi(group) for group in groups]
            case ProbeBrokers(brokers):
                return {b.id: self.silent[b.id] for b in brokers if b.id in self.silent}
            case Pause():
                return None

    def _read(self, op: ReadOp) -> Any:
        try:
            match op:
                case Get(path, watch):
                    return self.zk.get(self.session, path, watch)
                case Children(path, watch):
                    return self.zk.children(self.session, path, watch)
                case _:
                    return self.zk.exists(self.session, op.path, op.watch)
        except NoNode:
            return None

    def _multi(self, group: Sequence[ZkOp]) -> GroupResult:
        guard = Check(znodes.CONTROLLER_EPOCH, self.epoch_version)
        try:
            return self.zk.multi(self.session, [guard, *group])[1:]
        except ZkError as e:
            if e.path == znodes.CONTROLLER_EPOCH:
                raise Moved from None
            return e


# ---- reading orders


def leader_and_isr(orders: Sequence[Order], broker: int) -> dict[TopicPartition, Any]:
    """The last state of each partition that LeaderAndIsr sent to this broker."""
    sent: dict[TopicPartition, LeaderAndIsrPartition] = {}
    for order in orders:
        if isinstance(order, SendLeaderAndIsr) and order.broker_id == broker:
            sent.update({p.tp: p for p in order.partitions})
    return sent


def stopped(orders: Sequence[Order], broker: int, *, delete: bool) -> list[TopicPartition]:
    return [
        p.tp
        for order in orders
        if isinstance(order, SendStopReplica) and order.broker_id == broker
        for p in order.partitions
        if p.delete is delete
    ]


def metadata(orders: Sequence[Order], broker: int) -> dict[TopicPartition, Any]:
    """The last metadata of each partition sent to this broker."""
    sent: dict[TopicPartition, Any] = {}
    for order in orders:
        if isinstance(order, SendUpdateMetadata) and broker in dict(order.brokers):
            sent.update({p.tp: p for p in order.partitions})
    return sent


def live_sent(orders: Sequence[Order], broker: int) -> list[list[int]]:
    """The lists of live brokers sent to this broker."""
    return [
        [b.id for b in order.live]
        for order in orders
        if isinstance(order, SendUpdateMetadata) and broker in dict(order.brokers)
    ]


def sent_count(orders: Sequence[Order], kind: type[object]) -> int:
    return sum(isinstance(order, kind) for order in orders)
