"""One broker, put together: the only place that knows both the broker and the controller.

Start: bind every listener (a port in use ends it here), open a ZooKeeper session, lock and recover
the log directories, register, and only then accept connections, so that no client sees a broker
that does not know its own partitions.

A ZooKeeper session that expires takes the registration and the candidacy with it, and nothing else:
the data plane goes on under the last known leadership, and a new session registers the broker
again, with a new broker epoch.

Stop: when `shutdown` is set, the shutdown is controlled.  Leaders are moved first, then requests
and every other writer of the logs end, and the logs are flushed and the clean-shutdown mark left.
Cancellation means a crash, and does none of this.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence

import trio

from highwater.base.event_loop import monotonic_ms
from highwater.broker import handlers
from highwater.broker.admin.leaving import leave_cluster
from highwater.broker.admin.producer_ids import ProducerIds
from highwater.broker.admin.topic_znodes import auto_create
from highwater.broker.coordinator.group.coordinator import GroupCoordinator
from highwater.broker.coordinator.group.group_metrics import register_group_metrics
from highwater.broker.coordinator.share.coordinator import ShareCoordinator
from highwater.broker.coordinator.share.state_metrics import register_state_metrics
from highwater.broker.coordinator.transaction.coordinator import TransactionCoordinator
from highwater.broker.log.cleaner.cleaner import LogCleaner
from highwater.broker.log.cleaner.cleaner_metrics import register_cleaner_metrics
from highwater.broker.log.log_config import DEFAULTS
from highwater.broker.log.log_manager import LogDirectoryError, LogManager
from highwater.broker.log.upkeep import Upkeep
from highwater.broker.measure.broker_metrics import BrokerState, register_broker_metrics
from highwater.broker.measure.metrics_server import open_metrics_server
from highwater.broker.measure.zookeeper_metrics import ZooKeeperMetrics
from highwater.broker.membership.dir_failures import DirFailures
from highwater.broker.membership.registration import (
    BrokerError,
    HaltError,
    StartError,
    check_cluster,
    cluster_id,
    make_paths,
    register,
    stored_cluster,
)
from highwater.broker.membership.session_watch import SessionWatch
from highwater.broker.metadata.metadata_cache import MetadataCache
from highwater.broker.network.network_metrics import register_network_metrics
from highwater.broker.network.socket_server import SocketServer
from highwater.broker.network.tracing import trace
from highwater.broker.quota.entities import DEFAULT, bound_of, entity_of_path
from highwater.broker.quota.quota_manager import CONNECTION_RATE
from highwater.broker.replica.all_in_sync import all_in_sync
from highwater.broker.replica.replica_manager import ReplicaManager
from highwater.broker.request.purgatory import CompletionSink, Purgatories
from highwater.broker.request.request_metrics import Metrics
from highwater.broker.services import Services
from highwater.broker.settings.authorizer import AclChanges, authorizer_of
from highwater.broker.settings.config_changes import Changes, DynamicConfigWatcher
from highwater.broker.settings.dynamic_broker_config import UNCLEAN_ELECTION
from highwater.broker.settings.token_manager import TokenChanges, TokenManager
from highwater.broker.share.share_partitions import SharePartitions
from highwater.broker.share.state_links import StateLinks
from highwater.controller.shell.candidate import Candidate
from highwater.kafka import acl_znodes, features, znodes
from highwater.kafka.config import Config
from highwater.kafka.sanitizer import desanitize
from highwater.kafka.security.links import open_security
from highwater.kafka.token_znodes import TOKEN_PATHS
from highwater.kafka.types import BrokerEpoch, BrokerId, BrokerInfo, Endpoint, TopicPartition
from highwater.world.api import (
    ConnectionLoss,
    NotAllowed,
    SessionExpired,
    World,
    ZkError,
    ZooKeeper,
)

__all__ = ["BrokerError", "HaltError", "StartError", "serve"]

log = logging.getLogger(__name__)

RECONNECT_S = 0.2
DAMAGED_S = 1.0


async def serve(
    config: Config,
    world: World,
    *,
    shutdown: trio.Event | None = None,
    host_name: str = "localhost",
    task_status: trio.TaskStatus[Services] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Runs one broker until `shutdown` is set (controlled) or the task is cancelled (a crash).

    Raises BrokerError, OSError (a port in use) or ConfigError with one clear line.
    """
    if shutdown is None:
        shutdown = trio.Event()
    await Broker(config, world, host_name).run(shutdown, task_status)


class Broker:
    """The parts of one broker and the order in which they start and stop."""

    def __init__(self, config: Config, world: World, host_name: str) -> None:
        self.config = config
        self.security = open_security(config, world)
        self._given = dataclasses.replace(config)
        """The configuration at the start: the controller itself reads what changed later."""
        self.world = world = self.security.brokers
        self.host_name = host_name
        self.broker_id = BrokerId(config.broker_id)
        self.listeners = config.parsed_listeners
        self.endpoints: tuple[Endpoint, ...] = ()
        self.metadata = MetadataCache(self.broker_id)
        self.purgatories = Purgatories()
        self.completions = CompletionSink(self.purgatories)
        self.logs = LogManager(
            world.disk,
            world.clock,
            config.log_dirs,
            config,
            on_dir_failure=self._dir_failed,
            high_watermark=lambda tp: self.replicas.high_watermark_of(tp),
            below=world.random.randrange,
        )
        self.cleaner = LogCleaner(self.logs, world.disk, world.clock, config, self._all_in_sync)
        self.replicas = ReplicaManager(
            config,
            world,
            self.logs,
            self.broker_id,
            is_alive=self.metadata.is_alive,
            is_known=lambda tp: self.metadata.partition(tp) is not None,
            leader_lost=lambda broker: self.metadata.doubt(broker, monotonic_ms()),
            completed=self.completions.add,
            zk=lambda: self.services.session,
        )
        waits = self.purgatories, self.completions.add
        coordinated = config, world, self.replicas, self.metadata, *waits
        share_states = ShareCoordinator(*coordinated)
        self.share_links = StateLinks(
            config,
            world,
            self.metadata,
            share_states,
            lambda: auto_create(self.services, share_states.topic),
        )
        groups = GroupCoordinator(*coordinated)
        self.services = Services(
            config=config,
            world=world,
            broker_id=self.broker_id,
            cluster_id="",
            logs=self.logs,
            replicas=self.replicas,
            metadata=self.metadata,
            purgatories=self.purgatories,
            completions=self.completions,
            metrics=Metrics(),
            groups=groups,
            transactions=TransactionCoordinator(*coordinated),
            share_states=share_states,
            persister=self.share_links,
            share=SharePartitions(config, self.replicas, *waits, self.share_links, groups.configs),
            broker_epoch=BrokerEpoch(-1),
        )
        self.services.upkeep = Upkeep(self.logs, self.cleaner)
        self.services.authorizer = authorizer_of(config)
        self.services.producer_ids = ProducerIds(self.broker_id, self._zookeeper)
        self._zk_metrics = ZooKeeperMetrics(self.services.metrics, world.clock.perf_ns)
        secured = self.security
        self.services.tokens = TokenManager(secured.tokens, world, config, self._zookeeper)
        self.server = SocketServer(
            config, secured.clients, handlers.TABLE, self.services, secured.tls, secured.sasl
        )
        self.server.on_disconnect.append(self.services.share.disconnected)
        register_network_metrics(self.server)
        self.completions.hold, self.completions.go = self.server.hold, self.server.go
        self._tell_of_changes()
        self.dir_failures = DirFailures(
            self.broker_id, config.log_dirs, lambda: self.services.session
        )
        self._loaded = False
        self._serving, self._writers = trio.CancelScope(), trio.CancelScope()
        self._ready = False
        self._controller_gauges: Callable[[], Mapping[str, int]] = dict
        self._state = BrokerState.STARTING
        self._served, self._written = trio.Event(), trio.Event()

    def _zookeeper(self) -> ZooKeeper:
        """The session of the moment."""
        return self.services.zk

    def _tell_of_changes(self) -> None:
        """Registers those that are told when the configuration changes while the broker runs."""
        self.services.dynamic.on_change = self._reconfigured
        self.services.dynamic.stores = self.security.prepared
        self.services.dynamic.limits = self.server.limit_listeners
        self.services.topic_configs.apply = self._topic_configured
        self.services.levels_changed.append(self.server.request_log.refresh)

    def _all_in_sync(self, tp: TopicPartition) -> bool:
        return all_in_sync(self.replicas.partitions.get(tp), self.metadata.partition(tp))

    def _dir_failed(self, log_dir: str, error: OSError) -> None:
        self.dir_failures.add(log_dir, error, self.replicas.dir_failed(log_dir))

    async def run(self, shutdown: trio.Event, task_status: trio.TaskStatus[Services]) -> None:
        addresses = await self.server.bind()
        metrics_page = await open_metrics_server(
            self.config,
            self.world,
            self.services.metrics,
            ready=lambda: self._ready,
            trace=lambda query: trace(self.server, query),
        )
        register_broker_metrics(
            self.services, lambda: self._controller_gauges(), lambda: self._state
        )
        register_group_metrics(self.services.metrics, self.services.groups)
        register_state_metrics(self.services.metrics, self.services.share_states.writes)
        self.services.metrics.collector(self.services.share.families)
        register_cleaner_metrics(
            self.services.metrics, self.cleaner, self.config.log_dirs, self.world.clock
        )
        self.endpoints = self.listeners.registered(addresses, self.host_name)
        self.metadata.local = BrokerInfo(
            self.broker_id, BrokerEpoch(-1), self.endpoints, self.config.broker_rack
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.purgatories.run)
            nursery.start_soon(self.completions.run)
            nursery.start_soon(self.services.agreement.run)
            writers = await nursery.start(self._write)
            await writers.start(self.services.groups.run)
            await writers.start(self.services.transactions.run)
            await writers.start(self.services.share_states.run)
            await writers.start(self.share_links.run)
            await writers.start(self.services.share.run)
            nursery.start_soon(self._serve_sockets)
            if metrics_page is not None:
                nursery.start_soon(metrics_page.run)
            first = await nursery.start(self._sessions, nursery, writers)
            await nursery.start(self._wait_ready, first)
            log.info(
                "broker %d serves %s (epoch %d)",
                self.broker_id,
                ", ".join(f"{e.listener}://{e.host}:{e.port}" for e in self.endpoints),
                self.services.broker_epoch,
            )
            task_status.started(self.services)
            self._ready, self._state = True, BrokerState.RUNNING
            await shutdown.wait()
            self._ready, self._state = False, BrokerState.PENDING_CONTROLLED_SHUTDOWN
            await self._leave()
            nursery.cancel_scope.cancel()

    async def _serve_sockets(self) -> None:
        with self._serving:
            await self.server.run()
        self._served.set()

    async def _write(self, *, task_status: trio.TaskStatus[trio.Nursery]) -> None:
        """Runs every writer of the logs that is no request; ends before the logs are closed.

        Records that a fetcher appended during the flush would be missing from the indexes, and a
        start after a clean shutdown reads no batch: an aborted transaction would be shown.
        """
        with self._writers:
            async with trio.open_nursery() as nursery:
                task_status.started(nursery)
                await trio.sleep_forever()
        self._written.set()

    # ---------------------------------------------------------------- sessions

    async def _sessions(
        self,
        nursery: trio.Nursery,
        writers: trio.Nursery,
        *,
        task_status: trio.TaskStatus[trio.Event],
    ) -> None:
        """One ZooKeeper session after another; the broker starts only once the first is open."""
        ready = trio.Event()
        task_status.started(ready)
        connect, told = self.config.zookeeper_connect, ""
        while True:
            opened = trio.Event()
            try:
                await self._session(nursery, writers, ready, opened)
            except znodes.BadZnode as e:
                problem = f"ZooKeeper at {connect}: {e}; correct that znode"
                if not ready.is_set():
                    raise StartError(problem) from e
                if problem != told:
                    log.error("%s; until then this broker is out of the cluster", problem)
                told = problem
                await trio.sleep(DAMAGED_S)
            except ZkError as e:
                if not ready.is_set() and not (opened.is_set() and _may_pass(e)):
                    raise StartError(f"ZooKeeper at {connect} {_why_not(e)}") from e
                log.warning("ZooKeeper at %s: %s; trying again", connect, e)
                await trio.sleep(RECONNECT_S)

    async def _wait_ready(self, ready: trio.Event, *, task_status: trio.TaskStatus[None]) -> None:
        await ready.wait()
        task_status.started()

    async def _session(
        self,
        nursery: trio.Nursery,
        writers: trio.Nursery,
        ready: trio.Event,
        opened: trio.Event,
    ) -> None:
        config = self.config
        timeout = config.zookeeper_session_timeout_ms
        async with self.world.zookeeper(
            config.zookeeper_connect, timeout, config.zookeeper_connection_timeout_ms or timeout
        ) as session:
            opened.set()
            zk = self._zk_metrics.measured(session)
            watch = SessionWatch(zk, config, self.world)
            log.info("ZooKeeper session 0x%x, %d ms", zk.session_id, zk.session_timeout_ms)
            running_in = self.services.cluster_id
            stored = None if running_in else stored_cluster(self.world.disk, config.log_dirs)
            await check_cluster(zk, config.zookeeper_connect, running_in, stored)
            acls = self.services.authorizer
            tokens = self.security.tokens
            await make_paths(
                zk,
                [
                    *(acl_znodes.ACL_PATHS if acls is not None else ()),
                    *(TOKEN_PATHS if tokens.enabled else ()),
                ],
            )
            watcher = DynamicConfigWatcher(zk, self.services.topic_configs, self._entity_configured)
            await watcher.load(("groups",) if self.services.groups.configs.wanted else ())
            feeds = [watcher.changes]
            if acls is not None:
                rules = AclChanges(zk, acls)
                await rules.load()
                feeds += rules.feeds
            if tokens.enabled:
                changes = TokenChanges(zk, tokens)
                await changes.load()
                feeds += changes.feeds
            if not self._loaded:
                await self._load(zk, nursery, writers)
            why = await self._join(zk, feeds, ready, watch)
        log.warning("ZooKeeper session 0x%x %s", zk.session_id, why)

    async def _load(self, zk: ZooKeeper, nursery: trio.Nursery, writers: trio.Nursery) -> None:
        """Loads what is needed from ZooKeeper once: the cluster id, then the log directories."""
        founded = await cluster_id(zk, self.world)
        self._loaded, self._state = True, BrokerState.RECOVERY
        self.services.cluster_id = self.metadata.cluster_id = founded
        try:
            await self.logs.load(founded, self.broker_id, self.replicas.topic_overrides)
        except LogDirectoryError as e:
            raise StartError(self.dir_failures.none_left or str(e)) from e
        nursery.start_soon(self.dir_failures.run)
        writers.start_soon(self.logs.run)
        if self.config.log_cleaner_enable:
            nursery.start_soon(self.cleaner.run)
        await writers.start(self.replicas.run)

    async def _join(
        self,
        zk: ZooKeeper,
        feeds: Sequence[Changes],
        ready: trio.Event,
        watch: SessionWatch,
    ) -> str:
        """Takes part in the cluster for as long as the session lasts; returns why it ended."""
        try:
            self.services.session, self.services.session_watch = zk, watch
            self.services.feeds = feeds
            self.services.broker_epoch = await register(
                zk,
                self.world,
                self.broker_id,
                self.endpoints,
                self.config.broker_rack,
                features.announced(self.config.highwater_topic_ids),
            )
            # not before the epoch is known: what the controller sent to an earlier life may wait in
            # the listen queue, and would make a leader of a log that has lost its tail
            self.server.start_accepting()
            candidate = Candidate(
                self._given,
                self.security.controller,
                self.broker_id,
                lambda: self.services.broker_epoch,
                zk,
                cluster_id=self.services.cluster_id,
                listener_of=self.listeners.controller_channel,
                inter_broker_listener=self.listeners.inter_broker,
            )
            async with trio.open_nursery() as nursery:
                for feed in feeds:
                    nursery.start_soon(self._follow, feed)
                await nursery.start(candidate.run)
                self.services.candidate = candidate.port
                if self.security.tokens.enabled:
                    services = self.services
                    nursery.start_soon(services.tokens.run, lambda: services.is_controller)
                self._controller_gauges = candidate.gauges
                ready.set()
                why = await watch.over()
                nursery.cancel_scope.cancel()
            return why
        finally:
            self.services.candidate, self.services.feeds = None, ()
            self.services.session = self.services.session_watch = None

    async def _follow(self, feed: Changes) -> None:
        while True:
            try:
                await feed.run()
            except SessionExpired:
                return
            except ZkError as e:
                log.info("changes in ZooKeeper are not followed for now: %s", e)
            await trio.sleep(RECONNECT_S)

    def _topic_configured(self, topic: str, overrides: Mapping[str, str]) -> None:
        self.replicas.topic_configured(topic, overrides)
        candidate = self.services.candidate
        if candidate is not None and overrides.get(UNCLEAN_ELECTION, "").lower() == "true":
            candidate.unclean_election_enabled(topic)

    def _entity_configured(self, path: str, properties: Mapping[str, str]) -> None:
        """Applies the configuration of anything but a topic; raises ValueError."""
        kind, _, name = path.partition("/")
        if kind == "brokers":
            self.services.dynamic.configured(name, properties)
        elif kind == "groups":
            self.services.groups.configs.configured(name, properties)
        elif kind == "ips":
            rate = bound_of(CONNECTION_RATE, properties)
            self.server.limits.limit_ip(name if name == DEFAULT else desanitize(name), rate)
        elif (entity := entity_of_path(path)) is not None:
            self.services.quotas.configured(entity, properties)
            if kind == "users" and "/" not in name:
                self.security.users.configured(desanitize(name), properties)

    def _reconfigured(self, names: Sequence[str]) -> None:
        """Applies dynamic broker configuration to the parts that keep a copy of a value."""
        self.server.reconfigure()
        if "num.replica.fetchers" in names:
            self.replicas.fetchers.resize()
        self.cleaner.resize()
        self.replicas.throttles.bound(self.services.dynamic.rates)
        candidate = self.services.candidate
        if UNCLEAN_ELECTION in names and self.config.unclean_leader_election_enable and candidate:
            candidate.unclean_election_enabled(None)
        if not DEFAULTS.isdisjoint(names):
            self.logs.reconfigure()
            replicas = self.replicas
            for topic in dict.fromkeys(tp.topic for tp in replicas.partitions):
                replicas.topic_configured(topic, replicas.topic_overrides.get(topic, {}))

    # ---------------------------------------------------------------- leaving

    async def _leave(self) -> None:
        """Controlled shutdown: leaders move first, so that no client waits for a failure to be
        seen.
        """
        log.info("broker %d shuts down", self.broker_id)
        if self.config.controlled_shutdown_enable:
            await leave_cluster(self.services)
        self._state = BrokerState.SHUTTING_DOWN
        await self.server.drain()
        self._serving.cancel()
        await self._served.wait()
        if self.config.log_cleaner_enable:
            await self.cleaner.stop()
        self._writers.cancel()
        await self._written.wait()
        self.replicas.checkpoint_high_watermarks()
        await self.logs.shutdown()
        log.info("broker %d has stopped", self.broker_id)


def _why_not(error: ZkError) -> str:
    if isinstance(error, NotAllowed):
        return error.told
    return f"does not answer ({error}): start it, or correct zookeeper.connect"


def _may_pass(error: ZkError) -> bool:
    """True for the errors that a ZooKeeper which was reachable a moment ago gives for a while."""
    return isinstance(error, ConnectionLoss | SessionExpired)
