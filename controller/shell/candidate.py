"""Each broker is a candidate: the first to create /controller is the controller.

The multi that creates it also sets /controller_epoch to the next number, at the version that was
read before.  So if two brokers both see no controller, only one succeeds, and each controller has
its own epoch, which all of its writes and requests carry.  /controller is ephemeral; the other
brokers watch it.

A killed controller's ephemeral znode outlives it by the session time-out.  So a candidate also
keeps a probe connection to the controller's broker, and takes over /controller when that process is
gone (`suspicion.TakeOver` decides when): delete, create and the next epoch in one multi.  The
version of /controller_epoch was read *before* /controller, so the multi fails if another broker has
become the controller since.  If the old controller is alive after all, its next write finds another
epoch, and brokers refuse its requests.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

import trio

from highwater.base.event_loop import monotonic_ms
from highwater.controller.rules import brokers, events, machine
from highwater.controller.rules.events import Elected, Outcome
from highwater.controller.rules.suspicion import TakeOver
from highwater.controller.shell import probe
from highwater.controller.shell.term import Runtime
from highwater.controller.shell.zk import Session
from highwater.kafka import znodes
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.types import (
    NO_BROKER,
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    TopicPartition,
    ZkVersion,
)
from highwater.world.api import (
    BadVersion,
    Check,
    ConnectionLoss,
    Create,
    Delete,
    NodeExists,
    NoNode,
    SessionExpired,
    SetData,
    Stat,
    WatchEvent,
    ZkError,
    ZkOp,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from highwater.kafka.config import Config
    from highwater.kafka.replica_assignment import Reassignment
    from highwater.kafka.types import Endpoint
    from highwater.world.api import World, ZooKeeper

log = logging.getLogger("controller")

_RESIGN_S = 2.0
_LOOK_AGAIN_S = 1.0


class Candidate:
    """One broker's candidacy within one ZooKeeper session."""

    def __init__(
        self,
        config: Config,
        world: World,
        broker_id: BrokerId,
        broker_epoch: Callable[[], int],
        zk: ZooKeeper,
        *,
        cluster_id: str,
        listener_of: str,
        inter_broker_listener: str,
    ) -> None:
        """`listener_of` names the listener for the controller's requests."""
        self._broker_epoch = broker_epoch
        self._listeners = (listener_of, inter_broker_listener)
        self._config = config
        self._world = world
        self._broker_id = broker_id
        self._cluster_id = cluster_id
        self._zk = zk
        self._session = Session(zk)
        self._take_over = TakeOver()
        self._runtime: Runtime | None = None
        self._epoch = ControllerEpoch(0)
        self.controller_id = NO_BROKER
        """The controller, as far as this broker knows; -1 for none."""
        self.terms = 0
        self.port = ControllerPort(self)

    @property
    def active(self) -> bool:
        """Whether this broker is the controller."""
        return self._runtime is not None

    @property
    def runtime(self) -> Runtime:
        """The running term; raises ApiError(NOT_CONTROLLER)."""
        if self._runtime is None:
            raise ApiError(ErrorCode.NOT_CONTROLLER)
        return self._runtime

    def gauges(self) -> dict[str, int]:
        """KafkaController's and its queues' metrics, by Kafka's names."""
        if self._runtime is None:
            return {"ActiveControllerCount": 0}
        return {
            "ActiveControllerCount": 1,
            "EventQueueSize": self._runtime.queued,
            "TotalQueueSize": self._runtime.total_queue_size,
            **machine.gauges(self._runtime.machine.state),
        }

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Races for /controller, watches it or is the controller; returns when the session ends."""
        task_status.started()
        try:
            while True:
                await self._round()
        except SessionExpired:
            log.info("broker %d is no candidate any more: its session is over", self._broker_id)
        finally:
            self._session.close()

    # ---- the race

    async def _round(self) -> None:
        epoch, version = await self._read_epoch()
        changed = trio.Event()

        def on_change(_: WatchEvent) -> None:
            changed.set()

        try:
            data, stat = await self._session.insist(
                lambda: self._zk.get(znodes.CONTROLLER, on_change)
            )
        except NoNode:
            self.controller_id = NO_BROKER
            elected = await self._register(epoch, version, replace=False)
        else:
            if stat.ephemeral_owner == self._zk.session_id:
                # left by a term of this session whose end could not be written
                await self._remove_own(version)
                return
            if (await self._read_epoch())[1] != version:
                return  # a controller was elected between the two reads
            self.controller_id = _controller_in(data)
            if not await self._is_dead(self.controller_id, changed):
                return
            log.warning("the controller's broker %d is gone: taking over", self.controller_id)
            elected = await self._register(epoch, version, replace=True)
            if elected is not None:
                self._take_over.took(monotonic_ms())
        if elected is not None:
            await self._lead(elected)

    async def _read_epoch(self) -> tuple[ControllerEpoch, ZkVersion]:
        """Waits while the znode is damaged: nobody could say which epoch comes next."""
        damaged: bytes | None = None
        while True:
            try:
                data, stat = await self._session.insist(
                    lambda: self._zk.get(znodes.CONTROLLER_EPOCH)
                )
                return znodes.decode_controller_epoch(data), ZkVersion(stat.version)
            except NoNode:
                await self._create_epoch()
            except znodes.BadZnode as e:
                if data != damaged:
                    log.error("%s; until that is corrected nobody becomes the controller", e)
                damaged = data
                await trio.sleep(_LOOK_AGAIN_S)

    async def _create_epoch(self) -> None:
        first = znodes.encode_controller_epoch(ControllerEpoch(0))
        try:
            await self._session.insist(lambda: self._zk.create(znodes.CONTROLLER_EPOCH, first))
        except NodeExists:
            pass

    async def _register(
        self, epoch: ControllerEpoch, version: ZkVersion, *, replace: bool
    ) -> Elected | None:
        new = ControllerEpoch(epoch + 1)
        mine = znodes.encode_controller(self._broker_id, self._world.clock.wall_ms())
        ops: list[ZkOp] = [
            Create(znodes.CONTROLLER, mine, ephemeral=True),
            SetData(znodes.CONTROLLER_EPOCH, znodes.encode_controller_epoch(new), version),
        ]
        if replace:
            ops.insert(0, Delete(znodes.CONTROLLER))
        try:
            results = await self._zk.multi(ops)
        except (NodeExists, BadVersion, NoNode):
            return None  # another broker was first
        except ConnectionLoss:
            return await self._was_registered(new)
        stat = results[-1]
        assert isinstance(stat, Stat)
        return Elected(new, ZkVersion(stat.version))

    async def _was_registered(self, new: ControllerEpoch) -> Elected | None:
        """After the multi's answer was lost, asks ZooKeeper whether it was carried out."""
        epoch, version = await self._read_epoch()
        owner = await self._session.insist(lambda: self._zk.exists(znodes.CONTROLLER))
        if owner is None or owner.ephemeral_owner != self._zk.session_id or epoch != new:
            return None
        return Elected(new, version)

    # ---- another broker is the controller

    async def _is_dead(self, controller: BrokerId, changed: trio.Event) -> bool:
        """Waits until /controller changes (False) or its process turns out to be gone (True)."""
        if controller == self._broker_id:
            return True  # this broker's former process; the present one is registered in its place
        if not self._config.highwater_broker_probe_ms:
            await changed.wait()
            return False
        dead = False

        async def probing(nursery: trio.Nursery) -> None:
            nonlocal dead
            with suppress(SessionExpired):  # the next round raises it again, outside of a group
                dead = await self._probe_until_dead(controller)
            nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(probing, nursery)
            await changed.wait()
            nursery.cancel_scope.cancel()
        return dead and not changed.is_set()

    async def _probe_until_dead(self, controller: BrokerId) -> bool:
        probe_ms = self._config.highwater_broker_probe_ms
        was_connected = False
        while True:
            endpoint = await self._endpoint_of(controller)
            if endpoint is None:  # its session is over, and /controller goes with it
                await trio.sleep(_LOOK_AGAIN_S)
                continue
            answer = await probe.probe(
                self._world.network, endpoint, str(self._broker_id), probe_ms
            )
            if isinstance(answer, probe.Silence):
                if self._take_over.may(
                    monotonic_ms(), was_connected=was_connected, refused=answer.refused
                ):
                    return True
                await trio.sleep(probe_ms / 1000)
                continue
            was_connected = True
            try:
                await answer.wait_closed()
            finally:
                answer.close()

    async def _endpoint_of(self, broker_id: BrokerId) -> Endpoint | None:
        try:
            found = await self._session.insist(lambda: self._zk.get(znodes.broker_path(broker_id)))
        except NoNode:
            return None
        info = brokers.decode(broker_id, found)
        if info is None:
            return None
        channel, inter_broker = self._listeners
        return info.endpoint(channel) or info.endpoint(inter_broker)

    # ---- this broker is the controller

    async def _lead(self, elected: Elected) -> None:
        log.warning(
            "broker %d (broker epoch %d) is the controller, epoch %d",
            self._broker_id,
            self._broker_epoch(),
            elected.epoch,
        )
        self.controller_id = self._broker_id
        self._epoch = elected.epoch
        self.terms += 1
        runtime = Runtime(
            self._config,
            self._world,
            self._broker_id,
            self._cluster_id,
            self._session,
            elected,
            *self._listeners,
        )
        self._runtime = runtime
        reason = "the broker stops"
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._stop_when_replaced, runtime)
                nursery.start_soon(self._stop_when_cut_off, runtime)
                reason = await runtime.run()
                nursery.cancel_scope.cancel()
        finally:
            self._runtime = None
            self.controller_id = NO_BROKER
            log.warning("broker %d is no longer the controller: %s", self._broker_id, reason)
        await self._session.usable()
        await self._remove_own(elected.epoch_zk_version)

    async def _stop_when_replaced(self, runtime: Runtime) -> None:
        while True:
            changed = trio.Event()

            try:
                stat = await self._watch_controller(changed)
            except SessionExpired:
                return  # `_stop_when_cut_off` handles that
            if stat is None or stat.ephemeral_owner != self._zk.session_id:
                runtime.stop("/controller is not this broker's any more")
                return
            await changed.wait()

    async def _watch_controller(self, changed: trio.Event) -> Stat | None:
        return await self._session.insist(
            lambda: self._zk.exists(znodes.CONTROLLER, lambda _: changed.set())
        )

    async def _stop_when_cut_off(self, runtime: Runtime) -> None:
        runtime.stop(await self._session.gone(self._zk.session_timeout_ms))

    async def _remove_own(self, version: ZkVersion) -> None:
        """Frees /controller, if it still belongs to this session and this epoch."""
        with trio.move_on_after(_RESIGN_S):
            stat = await self._session.insist(lambda: self._zk.exists(znodes.CONTROLLER))
            if stat is None or stat.ephemeral_owner != self._zk.session_id:
                return
            try:
                await self._zk.multi(
                    [Check(znodes.CONTROLLER_EPOCH, version), Delete(znodes.CONTROLLER)]
                )
            except SessionExpired:
                raise
            except ZkError as e:
                log.info("/controller stays for now: %s", e)
                await trio.sleep(_LOOK_AGAIN_S)


class ControllerPort:
    """How this broker's handlers reach the controller that may run in the same process."""

    def __init__(self, candidate: Candidate) -> None:
        self._candidate = candidate

    @property
    def active(self) -> bool:
        return self._candidate.active

    async def elect_leaders(
        self, partitions: Sequence[TopicPartition] | None, unclean: bool
    ) -> dict[TopicPartition, Outcome]:
        wanted = None if partitions is None else tuple(partitions)
        answer: dict[TopicPartition, Outcome] = await self._candidate.runtime.ask(
            lambda token: events.ElectLeaders(token, wanted, unclean)
        )
        return answer

    async def alter_partition_reassignments(
        self, targets: Mapping[TopicPartition, Sequence[int] | None]
    ) -> dict[TopicPartition, Outcome]:
        wanted = {
            tp: None if target is None else tuple(BrokerId(b) for b in target)
            for tp, target in targets.items()
        }
        answer: dict[TopicPartition, Outcome] = await self._candidate.runtime.ask(
            lambda token: events.AlterReassignments(token, wanted)
        )
        return answer

    async def list_partition_reassignments(
        self, partitions: Sequence[TopicPartition] | None
    ) -> dict[TopicPartition, Reassignment]:
        wanted = None if partitions is None else tuple(partitions)
        answer: dict[TopicPartition, Reassignment] = await self._candidate.runtime.ask(
            lambda token: events.ListReassignments(token, wanted)
        )
        return answer

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> list[TopicPartition]:
        """The partitions that the broker still leads; empty when it may stop."""
        answer: list[TopicPartition] = await self._candidate.runtime.ask(
            lambda token: events.ControlledShutdown(
                token, BrokerId(broker_id), BrokerEpoch(broker_epoch)
            )
        )
        return answer

    def unclean_election_enabled(self, topic: str | None) -> None:
        """unclean.leader.election.enable became true, for one topic or (None) by default."""
        if self._candidate.active:
            self._candidate.runtime.post(events.UncleanElectionEnabled(topic))


def _controller_in(data: bytes) -> BrokerId:
    try:
        return znodes.decode_controller(data).broker_id
    except znodes.BadZnode as e:
        log.error("%s", e)
        return NO_BROKER
