"""One broker's services on a simulated ZooKeeper, and a way to ask a handler as a client would.

The parts are the broker's own, put together as in the broker, but not started: nothing runs unless
a test starts it.  In place of the controller a few lines (`Controller`) record their requests.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, ClassVar
from uuid import UUID

import trio

from highwater.base.event_loop import monotonic_ms
from highwater.broker.admin.producer_ids import ProducerIds
from highwater.broker.context import Context, Delayed, Feeding
from highwater.broker.coordinator.group.coordinator import GroupCoordinator
from highwater.broker.coordinator.share.coordinator import ShareCoordinator
from highwater.broker.coordinator.transaction.coordinator import TransactionCoordinator
from highwater.broker.handlers import update_metadata
from highwater.broker.log.log_manager import LogManager
from highwater.broker.membership.registration import make_paths
from highwater.broker.metadata.metadata_cache import MetadataCache
from highwater.broker.network.connection import ListenerInfo
from highwater.broker.replica.partition_states import decode_leader_and_isr
from highwater.broker.replica.replica_manager import ReplicaManager
from highwater.broker.request.purgatory import CompletionSink, Purgatories
from highwater.broker.request.request_metrics import Metrics
from highwater.broker.request.response import FileSlice, Part, Response
from highwater.broker.services import Services
from highwater.broker.share.share_partitions import SharePartitions
from highwater.broker.share.state_links import StateLinks
from highwater.kafka import znodes
from highwater.kafka.config import Config
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.features import TOPIC_IDS, TRANSACTION_VERSION
from highwater.kafka.security.authentication import Authentication
from highwater.kafka.types import BrokerEpoch, BrokerId, TopicPartition
from highwater.kafka.wire.codec import (
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from highwater.kafka.wire.controller_messages import (
    FeatureInUse,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from highwater.world.api import ZooKeeper
from highwater.world.sim import ZOOKEEPER, Kernel, Simulation, run_simulation
from tests.running import Body, running_in
from tests.waiting import at_once


@dataclass
class Controller:
    """The controller's port: it answers as the test says."""

    active: bool = True
    elections: dict[TopicPartition, tuple[ErrorCode, str | None]] = field(default_factory=dict)
    moves: dict[TopicPartition, Any] = field(default_factory=dict)
    asked: list[Any] = field(default_factory=list)

    def _ask(self, *what: Any) -> None:
        if not self.active:
            raise ApiError(ErrorCode.NOT_CONTROLLER)
        self.asked.append(what)

    async def elect_leaders(self, partitions: Any, unclean: bool) -> Any:
        self._ask(partitions, unclean)
        return self.elections

    async def alter_partition_reassignments(self, targets: Any) -> Any:
        self._ask(targets)
        return dict.fromkeys(targets, (ErrorCode.NONE, None))

    async def list_partition_reassignments(self, partitions: Any) -> Any:
        self._ask(partitions)
        return self.moves

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> Any:
        self._ask(broker_id, broker_epoch)
        return [TopicPartition("t", 1), TopicPartition("t", 0)]

    def unclean_election_enabled(self, topic: str | None) -> None:
        self.asked.append(("unclean", topic))


@dataclass(frozen=True)
class Connected:
    """The connection of a request."""

    listener: ListenerInfo
    authentication: Authentication | None
    peer: tuple[str, int] = ("c", 1)
    id: str = "c:1"
    index: int = 0


class Asker:
    """One broker and its ZooKeeper session."""

    def __init__(self, config: Config, world: Any, zk: ZooKeeper) -> None:
        self.zk = zk
        self.controller = Controller()
        self.principal, self.security_protocol = "User:ANONYMOUS", "PLAINTEXT"
        self.authentication: Any = None
        self.failed_dirs: list[str] | None = None
        """Log directories that have failed; None: none may."""
        self.answered: list[Any] = []
        """Requests, in the order in which their answers were given."""
        broker_id = BrokerId(config.broker_id)
        metadata = MetadataCache(broker_id, "the-cluster")
        purgatories = Purgatories()
        completions = CompletionSink(purgatories)
        logs = LogManager(world.disk, world.clock, config.log_dirs, config, self._dir_failed)
        replicas = ReplicaManager(
            config, world, logs, broker_id, is_alive=metadata.is_alive,
            completed=completions.add, zk=lambda: self.services.session,
        )  # fmt: skip
        coordinated = config, world, replicas, metadata, purgatories, completions.add
        share_states = ShareCoordinator(*coordinated)
        links = StateLinks(config, world, metadata, share_states, trio.lowlevel.checkpoint)
        groups = GroupCoordinator(*coordinated)
        self.services = Services(
            config=config,
            world=world,
            broker_id=broker_id,
            cluster_id="the-cluster",
            logs=logs,
            replicas=replicas,
            metadata=metadata,
            purgatories=purgatories,
            completions=completions,
            metrics=Metrics(),
            groups=groups,
            transactions=TransactionCoordinator(*coordinated),
            share_states=share_states,
            persister=links,
            share=SharePartitions(
                config, replicas, purgatories, completions.add, links, groups.configs
            ),
            broker_epoch=BrokerEpoch(10),
            session=zk,
            candidate=self.controller,
            producer_ids=ProducerIds(broker_id, lambda: self.services.zk),
        )

    def _dir_failed(self, log_dir: str, error: OSError) -> None:
        assert self.failed_dirs is not None, f"{log_dir}: {error}"
        self.failed_dirs.append(log_dir)
        self.services.replicas.dir_failed(log_dir)

    def context(self, module: ModuleType, version: int, connection_number: int = 0) -> Context:
        return Context(
            module.API, version, "test", self.principal,
            Connected(
                ListenerInfo("PLAINTEXT", self.security_protocol), self.authentication,
                index=connection_number,
            ),
            monotonic_ms(), self.services,
        )  # fmt: skip

    async def ask(self, module: ModuleType, version: int, request: Any) -> Any:
        """The decoded answer to a request; both have gone through bytes."""
        key = module.API.key
        message = decode_request(key, version, encode_request(request, version))
        ctx = self.context(module, version)
        try:
            reply = module.handle(ctx, message)
            if inspect.isawaitable(reply):
                reply = await reply
        except ApiError as e:  # as the handler pool does
            if not hasattr(module, "error_response"):
                raise
            reply = module.error_response(ctx, message, e.code)
        if isinstance(reply, Delayed):
            try:
                reply = await self._wait(reply, request)
            except ApiError as e:
                reply = module.error_response(ctx, message, e.code)
        else:
            self.answered.append(request)
        assert isinstance(reply, Response), reply
        if reply.parts is not None:
            body = b"".join(map(_bytes_of, reply.parts))
        else:
            body = bytes(encode_response(reply.message, version))
        answer = decode_response(key, version, body)
        untold = errors_in(answer.to_dict()) - set(reply.error_names)
        assert not untold, f"{module.__name__}: the metric of errors does not hear of {untold}"
        return answer

    async def _wait(self, reply: Delayed, request: Any) -> Response:
        answers: list[Response] = []
        errors: list[Exception] = []
        done = trio.Event()

        def respond(response: Response) -> None:
            answers.append(response)
            self.answered.append(request)
            done.set()

        def failed(error: Exception) -> None:
            errors.append(error)
            done.set()

        self.services.purgatories.submit(reply.operation, respond, failed)
        await done.wait()
        if errors:
            raise errors[0]
        return answers[0]

    async def update_metadata(
        self,
        topics: dict[str, dict[int, int]],
        brokers: dict[int, str | None] | None = None,
        host: str = "h",
        ids: dict[str, UUID] | None = None,
        features: dict[str, int] | None = None,
        features_epoch: int = -1,
    ) -> Any:
        """Updates as the controller does: leaders by partition, racks by live broker, all on one
        host; `ids` where topic ids are in use, or `features` by their levels."""
        if features is None:
            features = {} if ids is None else {TOPIC_IDS: 1, TRANSACTION_VERSION: 2}
        live = {1: None, 2: None, 3: None} if brokers is None else brokers
        request = UpdateMetadataRequest(
            controller_id=1,
            controller_epoch=1,
            broker_epoch=10,
            topic_states=[
                UpdateMetadataTopicState(
                    topic_name=topic,
                    topic_id=(ids or {}).get(topic),
                    partition_states=[
                        UpdateMetadataPartitionState(
                            partition_index=p, leader=leader, leader_epoch=0, isr=[1, 2, 3],
                            zk_version=0, replicas=[1, 2, 3], offline_replicas=[],
                            controller_epoch=1,
                        )
                        for p, leader in partitions.items()
                    ],
                )
                for topic, partitions in topics.items()
            ],
            features_in_use=[
                FeatureInUse(name=name, level=level) for name, level in features.items()
            ],
            features_epoch=features_epoch,
            live_brokers=[
                UpdateMetadataBroker(
                    id=i,
                    rack=rack,
                    endpoints=[
                        UpdateMetadataEndpoint(
                            port=9090 + i, host=host, listener="PLAINTEXT", security_protocol=0
                        )
                    ],
                )
                for i, rack in live.items()
            ],
        )  # fmt: skip
        return await self.ask(update_metadata, 6, request)

    async def stored_topic(self, name: str) -> dict[int, tuple[int, ...]] | None:
        """The assignment in ZooKeeper."""
        if await self.zk.exists(znodes.topic_path(name)) is None:
            return None
        data, _ = await self.zk.get(znodes.topic_path(name))
        return {p: a.replicas for p, a in znodes.decode_topic(name, data).partitions.items()}

    async def stored_config(self, name: str) -> dict[str, str]:
        data, _ = await self.zk.get(znodes.config_path("topics", name))
        return znodes.decode_config(data)


def _bytes_of(part: Part) -> bytes:
    if isinstance(part, FileSlice):
        return bytes(part.file.read(part.position, part.size))
    return bytes(part)


def answered(b: Any, reply: Any, respond: Callable[[Response], None]) -> None:
    """Has a reply answered, now or later, as the handler pool does."""
    if isinstance(reply, Delayed):
        b.services.purgatories.submit(reply.operation, respond)
    elif isinstance(reply, Feeding):
        assert reply.feed.serve("a fetch", Desk(respond), b.services.completions) is None
    else:
        assert isinstance(reply, Response)
        respond(reply)


class Desk:
    """The handlers of followers' requests, as a feed sees them."""

    def __init__(self, respond: Callable[[Response], None]) -> None:
        self._respond = respond

    def fed(self, request: Any, parts: Sequence[Part], errors: tuple[str, ...]) -> None:
        assert request == "a fetch"
        self._respond(Response(parts=parts, error_names=errors))

    def feed_failed(self, request: Any, error: Exception) -> None:
        raise error


class Led:
    """Broker 1, whose controller is the test; broker 2 is the other replica of these topics."""

    topics: ClassVar[tuple[str, ...]]

    def __init__(self, b: Asker) -> None:
        self.b: Any = b
        self.epoch = 0

    async def role(self, leader: int, isr: tuple[int, ...] = (1,)) -> None:
        self.epoch += 1
        state = LeaderAndIsrPartitionState(
            partition_index=0, controller_epoch=1, leader=leader, leader_epoch=self.epoch,
            isr=list(isr), partition_epoch=self.epoch, replicas=[1, 2], adding_replicas=[],
            removing_replicas=[], is_new=self.epoch == 1,
        )  # fmt: skip
        request = LeaderAndIsrRequest(
            controller_id=1, controller_epoch=1, broker_epoch=10, live_leaders=[],
            ungrouped_partition_states=[],
            topic_states=[
                LeaderAndIsrTopicState(topic_name=topic, partition_states=[state])
                for topic in self.topics
            ],
        )  # fmt: skip
        update = at_once(decode_leader_and_isr(request))
        errors = await self.b.services.replicas.leader_and_isr(update, lambda: None)
        assert set(errors.values()) == {ErrorCode.NONE}


def run_in_broker(body: Body, **config: Any) -> None:
    """Runs it with a broker beside three live ones in the metadata; `config` is the broker's."""
    given: dict[str, Any] = {"broker_id": 1, "log_dirs": ("/data",)} | config

    async def main(kernel: Kernel) -> None:
        simulation = Simulation(kernel)
        world = simulation.start(simulation.add_host("machine"))
        failures: list[BaseException] = []

        async def program() -> None:
            try:
                async with world.zookeeper(ZOOKEEPER, 4000, 4000) as zk:
                    await make_paths(zk)
                    asker = Asker(Config(**given), world, zk)
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(asker.services.purgatories.run)
                        await asker.update_metadata({})
                        with trio.fail_after(3600):
                            await body(asker)
                        nursery.cancel_scope.cancel()
            except BaseException as error:
                failures.append(error)
                raise

        await world.process.run(program)
        if failures:
            raise failures[0]

    run_simulation(1, main)


in_broker = running_in(run_in_broker)


def errors_in(answer: Any) -> set[str]:
    """The names of the errors in an answer (`to_dict` of a message), wherever they stand."""
    if isinstance(answer, list):
        return {name for part in answer for name in errors_in(part)}
    if not isinstance(answer, dict):
        return set()
    code = answer.get("error_code")
    own = {ErrorCode(code).name} if code else set()
    return own | {name for value in answer.values() for name in errors_in(value)}
