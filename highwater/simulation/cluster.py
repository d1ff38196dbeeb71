"""Runs production brokers on simulated machines: starts, kills, stops and freezes them.

Each broker is a `broker.server.Broker`, run by a simulated process.  After every step of one of its
tasks (a step runs to the next await, so it is atomic) the rules look at its changes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import trio

from highwater.broker.log.checkpoints import decode_offsets
from highwater.broker.server import Broker, BrokerError, StartError
from highwater.broker.services import Services
from highwater.kafka import znodes
from highwater.kafka.config import Config
from highwater.kafka.types import TopicPartition
from highwater.simulation.last_events import OWN_ERRORS, Trace
from highwater.simulation.requested import Requested
from highwater.simulation.rules.at_rest import mistaken_leader, unrest
from highwater.simulation.rules.cluster_rules import Rules
from highwater.simulation.rules.mirror import NEWER
from highwater.simulation.rules.second_opinions import on_disk, partings
from highwater.simulation.wire_tap import WireTap
from highwater.world.sim import ZOOKEEPER, Host, Kernel, Simulation, SimWorld
from highwater.world.sim.disk import SimDisk
from highwater.world.sim.inode import Inode

DATA, SPARE = "/data", "/spare"
"""The log directory, and the second one where there are two."""
PORT = 9092
CONTROL_PORT = 9093
_RESTART_AFTER_REFUSAL_S = 1.0
FLUSHED_SHARE = 0.15
"""The share of seeds with log.flush.interval.messages=1, where a power loss may lose nothing."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The properties of a cluster that a seed decides before the start."""

    brokers: int = 3
    min_isr: int = 2
    session_timeout_ms: int = 6000
    lag_ms: int = 3000
    segment_bytes: int = 4096
    control_plane: bool = True
    flush_every_batch: bool = False
    epoch_bumps: bool = False
    """Whether most transactional producers speak transaction.version 2."""
    cleaner_backoff_ms: int = 15_000
    internal_segment_bytes: int | None = None
    """Segment size of the coordinators' topics; small segments are rolled and cleaned in a seed."""
    more_log_dirs: tuple[str, ...] = ()
    queued_max_requests: int = 500
    retention_check_ms: int = 300_000
    session_slots: int = 1000
    """max.incremental.fetch.session.cache.slots"""
    consumer_times_ms: tuple[int, int] | None = None
    """Session time-out and heartbeat interval of the consumer protocol; None: a server's own."""
    share_times_ms: tuple[int, int, int] | None = None
    """Session time-out, heartbeat interval and a record's lock of share groups."""
    share_limits: tuple[int, int] | None = None
    """How many records of a share-partition are in flight, and how often one is delivered."""
    small_bytes: int = 0
    """`world.api.Connection.small_bytes`; with 0, sendfile sends everything that is read of a log.
    """

    def config(self, broker_id: int, host: str) -> Config:
        listeners = f"PLAINTEXT://{host}:{PORT}"
        if self.control_plane:
            listeners += f",CONTROLLER://{host}:{CONTROL_PORT}"
        config = Config(
            broker_id=broker_id,
            log_dirs=(DATA, *self.more_log_dirs),
            listeners=listeners,
            listener_security_protocol_map="PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            control_plane_listener_name="CONTROLLER" if self.control_plane else None,
            zookeeper_connect=ZOOKEEPER,
            zookeeper_session_timeout_ms=self.session_timeout_ms,
            num_network_threads=1,
            num_io_threads=2,
            queued_max_requests=self.queued_max_requests,
            auto_create_topics_enable=False,
            default_replication_factor=min(3, self.brokers),
            min_insync_replicas=self.min_isr,
            log_segment_bytes=self.segment_bytes,
            log_index_interval_bytes=512,
            replica_lag_time_max_ms=self.lag_ms,
            max_incremental_fetch_session_cache_slots=self.session_slots,
            replica_fetch_wait_max_ms=200,
            replica_fetch_backoff_ms=200,
            replica_socket_timeout_ms=3000,
            replica_high_watermark_checkpoint_interval_ms=1000,
            log_flush_offset_checkpoint_interval_ms=1500,
            controller_socket_timeout_ms=3000,
            controlled_shutdown_retry_backoff_ms=500,
            request_timeout_ms=5000,
            leader_imbalance_check_interval_seconds=10,
            log_segment_delete_delay_ms=1000,
            log_cleaner_backoff_ms=self.cleaner_backoff_ms,
            log_retention_check_interval_ms=self.retention_check_ms,
            transaction_state_log_num_partitions=2,
            transaction_state_log_replication_factor=min(3, self.brokers),
            transaction_abort_timed_out_transaction_cleanup_interval_ms=1000,
            offsets_topic_num_partitions=1,
            group_initial_rebalance_delay_ms=0,
            group_min_session_timeout_ms=1000,
            offsets_topic_replication_factor=min(3, self.brokers),
            share_coordinator_state_topic_num_partitions=2,
            share_coordinator_state_topic_replication_factor=min(3, self.brokers),
            share_coordinator_state_topic_min_isr=self.min_isr,
        )
        if (size := self.internal_segment_bytes) is not None:
            config = replace(
                config,
                offsets_topic_segment_bytes=size,
                transaction_state_log_segment_bytes=size,
                log_cleaner_min_cleanable_ratio=0.1,
            )
        if self.consumer_times_ms is not None:
            session_ms, interval_ms = self.consumer_times_ms
            config = replace(
                config,
                group_consumer_min_session_timeout_ms=session_ms,
                group_consumer_session_timeout_ms=session_ms,
                group_consumer_min_heartbeat_interval_ms=interval_ms,
                group_consumer_heartbeat_interval_ms=interval_ms,
            )
        config = self._of_share_groups(config)
        if self.flush_every_batch:
            config = replace(config, log_flush_interval_messages=1)
        return config

    def _of_share_groups(self, config: Config) -> Config:
        if self.share_times_ms is not None:
            session_ms, interval_ms, lock_ms = self.share_times_ms
            config = replace(
                config,
                group_share_min_session_timeout_ms=session_ms,
                group_share_session_timeout_ms=session_ms,
                group_share_min_heartbeat_interval_ms=interval_ms,
                group_share_heartbeat_interval_ms=interval_ms,
                group_share_min_record_lock_duration_ms=lock_ms,
                group_share_record_lock_duration_ms=lock_ms,
                share_coordinator_snapshot_update_records_per_snapshot=20,
                share_coordinator_state_topic_prune_interval_ms=5000,
            )
        if self.share_limits is not None:
            locks, deliveries = self.share_limits
            config = replace(
                config,
                group_share_partition_max_record_locks=locks,
                group_share_delivery_count_limit=deliveries,
            )
        return config


def shape_of(kernel: Kernel) -> Shape:
    random = kernel.random("shape")
    return Shape(
        brokers=random.choice((3, 3, 3, 4)),
        min_isr=random.choice((2, 2, 2, 1)),
        session_timeout_ms=random.choice((3000, 6000)),
        lag_ms=random.choice((1500, 3000)),
        segment_bytes=random.choice((1024, 4096, 1 << 20)),
        control_plane=random.random() < 0.7,
        flush_every_batch=random.random() < FLUSHED_SHARE,
        queued_max_requests=random.choice((500, 8)),
        small_bytes=kernel.random("small slices").choice((0, 8192)),
    )


class BrokerNode:
    """One broker id: its machine, and its present life."""

    def __init__(self, cluster: SimCluster, broker_id: int) -> None:
        self.cluster = cluster
        self.id = broker_id
        self.name = f"broker-{broker_id}"
        self.host: Host = cluster.simulation.add_host(self.name)
        self.world: SimWorld | None = None
        self.broker: Broker | None = None
        self.shutdown = trio.Event()
        self.ready = trio.Event()
        self.wanted = False
        self.errors_before = 0
        """How many errors its disk had reported before this life."""
        self.lost_power = False
        self.disturbed = False
        """Whether it stood still in this life, or lost power at its end."""
        self.in_order = False
        """Whether it ended by a controlled shutdown, so that all its logs are on the disk."""

    @property
    def running(self) -> bool:
        return self.world is not None and self.world.process.alive

    @property
    def services(self) -> Services | None:
        return self.broker.services if self.running and self.broker is not None else None

    def may_end(self, error: BaseException) -> bool:
        """Whether a fault explains that the broker ended with this error: ZooKeeper could not be
        reached, or its disk failed in this life; at a start, also an earlier error or a power loss.
        """
        if str(error).startswith("ZooKeeper at "):
            return not str(error).endswith("correct that znode")
        errors, before = self.host.disk.errors, self.errors_before
        started = isinstance(error, StartError)
        return errors > before or (started and (self.lost_power or errors > 0))


class SimCluster:
    """The brokers of one simulation."""

    def __init__(self, kernel: Kernel, shape: Shape, nursery: trio.Nursery) -> None:
        self.kernel = kernel
        self.shape = shape
        self.simulation = Simulation(kernel)
        self.simulation.fabric.small_bytes = shape.small_bytes
        self.trace = Trace(lambda: kernel.timeline.now)
        self.nursery = nursery
        self.nodes: dict[int, BrokerNode] = {}
        for broker_id in range(1, shape.brokers + 1):
            self.nodes[broker_id] = BrokerNode(self, broker_id)
        self.rules = Rules(
            lambda: kernel.timeline.now,
            self.trace,
            self.simulation.zookeeper.ensemble,
            {i: node.host.disk for i, node in self.nodes.items()},
            DATA,
            min_isr=shape.min_isr,
        )
        self.rules.more_folders = shape.more_log_dirs
        self.rules.wall_ms = lambda broker: self.nodes[broker].host.clock.wall_ms()
        self.rules.online = self._online
        self.rules.lateness.registered = self._registered
        self.simulation.zookeeper.on_write.append(self.rules.zookeeper_changed)
        self.tap = WireTap(self.simulation.fabric, [n.name for n in self.nodes.values()])
        self.looks: list[Callable[[int, Broker], None]] = []
        """Called after each step of a broker, when the rules have looked at it."""
        self.deaths: list[str] = []
        self.without_ids: set[int] = set()
        """Brokers that will not know topic ids after their next start."""
        self.requested = Requested()

    # -- lives ----------------------------------------------------------------------------------

    def start(self, broker_id: int) -> None:
        node = self.nodes[broker_id]
        if node.running:
            return
        self.rules.lateness.disturb()
        node.wanted, node.in_order = True, False
        errors = node.host.disk.errors
        unread = bool(node.host.disk.broken)  # its checkpoint cannot be read
        excused = errors > node.errors_before or node.disturbed or unread
        node.errors_before, node.disturbed = errors, False
        world = self.simulation.start(node.host)
        node.world, node.broker = world, None  # forget the former life's broker
        node.shutdown, node.ready = trio.Event(), trio.Event()
        if not node.host.disk.broken:
            for folder in (DATA, *self.shape.more_log_dirs):
                world.disk.make_dirs(folder)
        self.rules.disk_changed(broker_id)
        self.rules.broker_started(broker_id, self._checkpoint(node), excused=excused)
        self.trace.add(node.name, "starts")
        self.nursery.start_soon(self._live, node, world)

    def _checkpoint(self, node: BrokerNode) -> dict[TopicPartition, int]:
        """The high watermarks on the disk, read without its faults.  Replicas that have moved to
        another directory are left out, though the old directory's file may still name them."""
        found: dict[TopicPartition, int] = {}
        disk = node.host.disk
        for folder in (DATA, *self.shape.more_log_dirs) if not disk.broken else ():
            file = disk.find(f"{folder}/replication-offset-checkpoint")
            if isinstance(file, Inode):
                try:
                    marks = decode_offsets(bytes(file.data))
                except ValueError:
                    continue  # torn by a power loss
                found |= {tp: n for tp, n in marks.items() if self._log_is_in(folder, tp, disk)}
        return found

    def _log_is_in(self, folder: str, tp: TopicPartition, disk: SimDisk) -> bool:
        """Whether a folder has the replica's log, and no other folder has a newer copy: that may be
        so if this folder's directory failed."""
        others = {DATA, *self.shape.more_log_dirs} - {folder}
        newer = any(disk.find(f"{other}/{tp}/{NEWER}") for other in others)
        return disk.find(f"{folder}/{tp}") is not None and not newer

    async def _live(self, node: BrokerNode, world: SimWorld) -> None:
        config = self.shape.config(node.id, node.name)
        if node.id in self.without_ids:
            config = replace(config, highwater_topic_ids=False)

        async def program() -> None:
            if node.world is not world:
                return  # it was killed at the instant of its start, and the next life has begun
            node.broker = Broker(config, world, node.name)
            self.rules.watch_cleaner(node.broker.cleaner)
            self.rules.watch_metadata(node.id, node.broker.services.metadata)
            world.process.after_step = self._looking(node.id, node.broker)
            async with trio.open_nursery() as nursery:
                await nursery.start(partial(self._serve, node, node.broker))

        await world.process.run(program)
        self.trace.add(node.name, "has ended")
        if node.world is world:
            self.rules.broker_stopped(node.id)
        failure = world.process.failure
        if failure is not None:
            await self._died(node, failure)

    def _looking(self, broker_id: int, broker: Broker) -> Callable[[], None]:
        """The function to call after each step of a broker."""
        step = self.rules.watch(broker_id, broker.replicas)
        if not self.looks:
            return step

        def all_of_them() -> None:
            step()
            for look in self.looks:
                look(broker_id, broker)

        return all_of_them

    async def _serve(
        self, node: BrokerNode, broker: Broker, *, task_status: trio.TaskStatus[None]
    ) -> None:
        task_status.started()
        status = _Ready(node.ready, lambda: self._look_at_the_disk(node, broker))
        await broker.run(node.shutdown, status)
        sound = not node.host.disk.broken and not broker.services.logs.offline_dirs
        node.in_order = node.shutdown.is_set() and sound

    def _look_at_the_disk(self, node: BrokerNode, broker: Broker) -> None:
        """Checks that what the broker has in memory when it begins to serve is what its disk has
        (`rules/second_opinions`)."""
        disk = node.host.disk
        for wrong in () if disk.broken else on_disk(broker, disk, self.rules.partitions):
            self.rules.broken("R8", f"{node.name} came back, and {wrong}")

    async def _died(self, node: BrokerNode, failure: BaseException) -> None:
        """Starts a broker again that a fault has ended with an error line, as a service manager
        would do; any other death is a finding."""
        self.trace.add(node.name, f"died: {failure!r}")
        if isinstance(_only(failure), BrokerError) and node.may_end(_only(failure)):
            if any(error in str(_only(failure)) for error in OWN_ERRORS):
                self.mistaken(f"{node.name} halts: {_describe(failure)}")
            await trio.sleep(_RESTART_AFTER_REFUSAL_S)
            if node.wanted and not node.running:
                self.start(node.id)
            return
        self.deaths.append(f"{node.name}: {failure!r}")
        if isinstance(_only(failure), AssertionError):
            self.mistaken(f"{node.name} died: {_describe(failure)}")
        self.rules.broken("L2", f"{node.name} died: {_describe(failure)}")

    def mistaken(self, what: str) -> None:
        self.rules.broken("R12", what)

    def kill(self, broker_id: int) -> None:
        """Kills a broker as SIGKILL does."""
        node = self.nodes[broker_id]
        self.rules.lateness.disturb()
        node.wanted = False
        if node.running and node.world is not None:
            self.trace.add(node.name, "is killed")
            self.kernel.note("kill", broker_id)
            node.world.process.kill()

    def stop(self, broker_id: int) -> None:
        """Stops a broker as SIGTERM does, by a controlled shutdown."""
        node = self.nodes[broker_id]
        self.rules.lateness.disturb()
        node.wanted = False
        if node.running:
            self.trace.add(node.name, "is asked to stop")
            node.shutdown.set()

    def power_loss(self, broker_id: int) -> None:
        node = self.nodes[broker_id]
        node.wanted, node.lost_power, node.disturbed = False, True, True
        excused = not self.shape.flush_every_batch
        before = self._ends(broker_id)
        self.kernel.note("power loss", broker_id)
        self.rules.power_lost(broker_id, excused=excused)
        lost = self.simulation.power_loss(node.host)
        self.trace.add(node.name, f"loses power, and {lost} bytes")
        self.rules.disk_changed(broker_id)
        if node.in_order and (lost_of := before - self._ends(broker_id)):
            found = ", ".join(f"{tp} ended at {end}" for tp, end in sorted(lost_of))
            self.rules.broken("R13", f"{node.name} stopped in order, but not on the disk: {found}")

    def _ends(self, broker_id: int) -> set[tuple[TopicPartition, int]]:
        """The end of each log on this broker's disk."""
        found = self.rules.partitions.items()
        return {
            (tp, truth.replicas[broker_id].mirror.end)
            for tp, truth in found
            if broker_id in truth.replicas
        }

    def power_on(self, broker_id: int) -> None:
        self.simulation.power_on(self.nodes[broker_id].host)
        self.start(broker_id)

    def freeze(self, broker_id: int) -> None:
        node = self.nodes[broker_id]
        self.rules.lateness.disturb()
        if node.running and node.world is not None:
            self.trace.add(node.name, "is paused")
            node.disturbed = True
            node.world.process.freeze()

    def thaw(self, broker_id: int) -> None:
        node = self.nodes[broker_id]
        if node.running and node.world is not None:
            self.trace.add(node.name, "goes on")
            node.world.process.thaw()

    def _registered(self) -> bool:
        tree = self.simulation.zookeeper.ensemble.nodes
        return all(f"/brokers/ids/{number}" in tree for number in self.nodes)

    def _online(self, process: str, tp: TopicPartition, replicas: tuple[int, ...]) -> list[int]:
        """Those of these replicas that a process's controller takes for online."""
        for node in self.nodes.values():
            port: Any = node.services.candidate if node.services is not None else None
            runtime = port._candidate._runtime if port is not None else None
            if (
                runtime is not None
                and node.world is not None
                and str(node.world.process) == process
            ):
                return [b for b in replicas if runtime.machine.state.is_online(b, tp)]
        return []

    # -- what can be asked ----------------------------------------------------------------------

    @property
    def control_port(self) -> int:
        """The port to which controllers send their requests."""
        return CONTROL_PORT if self.shape.control_plane else PORT

    def controller(self) -> int | None:
        node = self.simulation.zookeeper.ensemble.nodes.get("/controller")
        return int(znodes.decode_controller(node.data).broker_id) if node else None

    def leader_of(self, tp: TopicPartition) -> int | None:
        truth = self.rules.partitions.get(tp)
        if truth is None or truth.state is None or truth.state.leader < 0:
            return None
        return int(truth.state.leader)

    def whole(self) -> str | None:
        """None when every partition has its leader and its full ISR, and every broker knows that;
        else the missing part.
        """
        for node in self.nodes.values():
            if not node.running or not node.ready.is_set():
                return f"{node.name} is not ready"
        for tp, truth in self.rules.partitions.items():
            if truth.state is None or truth.state.leader < 0:
                return f"{tp} has no leader"
            if set(truth.state.isr) != set(truth.assigned):
                return f"{tp} has ISR {truth.state.isr} of {truth.assigned}"
        return next(filter(None, map(self._ignorance, self.nodes.values())), None)

    def _ignorance(self, node: BrokerNode) -> str | None:
        """The first difference of this broker's metadata from ZooKeeper, or None."""
        if node.services is None:
            return f"{node.name} is not ready"
        metadata = node.services.metadata
        if set(metadata.brokers()) != set(self.nodes):
            return f"{node.name} knows of brokers {sorted(metadata.brokers())}"
        for tp, truth in self.rules.partitions.items():
            known, state = metadata.partition(tp), truth.state
            if known is None or state is None:
                return f"{node.name} does not know {tp}"
            if (known.leader, known.leader_epoch) != (state.leader, state.leader_epoch):
                return f"{node.name} knows {tp} with leader {known.leader}, epoch " + str(
                    known.leader_epoch
                )
        return None

    def brokers(self) -> dict[int, Broker]:
        """The brokers that run, by id."""
        return {n.id: n.broker for n in self.nodes.values() if n.running and n.broker}

    def unrest(self) -> str | None:
        """The first thing that a broker has not finished (`rules/at_rest.py`), or None."""
        tree = self.simulation.zookeeper.ensemble.nodes
        addresses = {node.id: (node.name, PORT) for node in self.nodes.values()}
        for node in self.nodes.values():
            marks, disk = self._checkpoint(node), node.host.disk
            broker = node.broker if node.running else None
            found = unrest(broker, disk, DATA, self.rules.partitions, marks, tree, addresses)
            if found is not None:
                return f"{node.name} {found}"
        running = self.brokers()
        return mistaken_leader(running) or next(partings(running), None)


class _Ready:
    """A TaskStatus that sets an event."""

    def __init__(self, event: trio.Event, then: Callable[[], None]) -> None:
        self._event = event
        self._then = then

    def started(self, value: Any = None) -> None:
        self._event.set()
        self._then()


def _only(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _describe(error: BaseException) -> str:
    """The innermost error and where it was raised."""
    error = _only(error)
    trace = error.__traceback__
    place = ""
    while trace is not None:
        code = trace.tb_frame.f_code
        place = f"{code.co_filename.rpartition('/')[2]}:{trace.tb_lineno} in {code.co_name}"
        trace = trace.tb_next
    return f"{error!r} at {place}"
