"""One term of the controller: gives events to the machine, and carries out its effects.

There is one queue of events.  It is bounded: it holds one event for each watched znode (equal
events are dropped), the answers to queued requests (which are bounded), and the requests of this
broker's handlers.  The machine gets the next event only when the previous procedure is finished.

The term ends with `ControllerMoved` (a write found another controller epoch), with the session, or
when a broker knows a newer controller; then all of its tasks are cancelled before `run` returns.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from highwater.base.event_loop import monotonic_ms
from highwater.controller.rules import suspicion
from highwater.controller.rules.effects import (
    AddBroker,
    Effect,
    Pause,
    ProbeBrokers,
    Question,
    ReadZk,
    Refuse,
    RemoveBroker,
    Reply,
    Resign,
    Schedule,
    SendLeaderAndIsr,
    SendStopReplica,
    SendUpdateMetadata,
    Watched,
    WriteZk,
)
from highwater.controller.rules.events import Answer, Elected, Event, Recovered, Suspected, of_watch
from highwater.controller.rules.machine import Machine
from highwater.controller.rules.state import Settings
from highwater.controller.shell import probe
from highwater.controller.shell.sender import Senders, SenderSettings, channel_endpoint
from highwater.controller.shell.zk import ControllerMoved, GuardedZk, Lease, Session
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.world.api import SessionExpired, WatchEvent

if TYPE_CHECKING:
    from highwater.kafka.config import Config
    from highwater.kafka.types import BrokerId, BrokerInfo
    from highwater.world.api import World

log = logging.getLogger("controller")


class _Waiter:
    __slots__ = ("done", "result")

    def __init__(self) -> None:
        self.done = trio.Event()
        self.result: Any = None


class Runtime:
    """`run` runs the term; `ask` passes a request to the machine and waits for the answer."""

    def __init__(
        self,
        config: Config,
        world: World,
        broker_id: BrokerId,
        cluster_id: str,
        session: Session,
        elected: Elected,
        channel_listener: str,
        inter_broker_listener: str,
    ) -> None:
        self._world = world
        self._broker_id = broker_id
        self._probe_ms = config.highwater_broker_probe_ms
        self._settings = SenderSettings(
            broker_id,
            elected.epoch,
            channel_listener,
            inter_broker_listener,
            config.controller_socket_timeout_ms,
        )
        self.machine = Machine(settings_of(config, broker_id, cluster_id))
        self._lease = Lease(session)
        self._senders = Senders(self._settings, world.network, self.post, self._lease.hold)
        self._zk = GuardedZk(session, elected.epoch_zk_version, self._on_watch)
        self._suspicion = suspicion.Suspicion()
        self._watchers: dict[BrokerId, tuple[BrokerInfo, trio.CancelScope]] = {}
        self._events: deque[Event] = deque([elected])
        self._queued: set[Event] = set()
        self._wake = trio.Event()
        self._waiters: dict[int, _Waiter] = {}
        self._next_token = 0
        self._ended: str | None = None
        self._nursery: trio.Nursery | None = None

    # ---- what comes in

    def post(self, event: Event) -> None:
        """Queues an event; never blocks."""
        self._events.append(event)
        self._wake.set()

    def _on_watch(self, watch: WatchEvent) -> None:
        event = of_watch(watch)
        if event is not None and event not in self._queued:
            self._queued.add(event)
            self.post(event)

    async def ask(self, make: Any) -> Any:
        """Passes a request to the machine, and waits.  Raises ApiError: the machine's refusal, or
        NOT_CONTROLLER when the term ends."""
        if self._ended is not None:
            raise ApiError(ErrorCode.NOT_CONTROLLER)
        token = self._next_token
        self._next_token += 1
        waiter = self._waiters[token] = _Waiter()
        try:
            self.post(make(token))
            await waiter.done.wait()
        finally:
            del self._waiters[token]
        if isinstance(waiter.result, ApiError):
            raise waiter.result
        return waiter.result

    def stop(self, reason: str) -> None:
        """Ends the term at once, whatever it is doing."""
        if self._ended is None:
            self._ended = reason
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel()

    @property
    def queued(self) -> int:
        return len(self._events)

    @property
    def total_queue_size(self) -> int:
        return self._senders.queued

    # ---- the term

    async def run(self) -> str:
        """Runs the term; returns the reason for its end."""
        try:
            async with trio.open_nursery() as self._nursery:
                self._nursery.start_soon(self._until_fenced, self._lease.keep)
                await self._until_fenced(partial(self._loop, self._nursery))
                self._nursery.cancel_scope.cancel()
        finally:
            if self._ended is None:
                self._ended = "the broker stops"
            for waiter in self._waiters.values():
                waiter.result = ApiError(ErrorCode.NOT_CONTROLLER)
                waiter.done.set()
        return self._ended

    async def _until_fenced(self, work: Callable[[], Awaitable[None]]) -> None:
        """Runs a part of the term; any error in it ends the term."""
        try:
            await work()
        except ControllerMoved as e:
            self.stop(str(e))
        except SessionExpired:
            self.stop("the ZooKeeper session has expired")
        except (trio.Cancelled, KeyboardInterrupt):
            raise
        except Exception:
            # as in Kafka: no controller for a moment is better than one in an unknown state
            log.exception("the controller fails, and resigns")
            self.stop("an error, see above")

    async def _loop(self, nursery: trio.Nursery) -> None:
        while self._ended is None:
            while not self._events:
                self._wake = trio.Event()
                await self._wake.wait()
            event = self._events.popleft()
            if isinstance(event, tuple):  # watches' events are tuples; the others hold dicts
                self._queued.discard(event)
            await self._process(event, nursery)

    async def _process(self, event: Event, nursery: trio.Nursery) -> None:
        answer: Event | None = event
        while answer is not None and self._ended is None:
            effects = self.machine.step(answer, monotonic_ms())
            answer = None
            for effect in effects:
                if isinstance(effect, Question):
                    answer = Answer(await self._find_out(effect))
                else:
                    self._carry_out(effect, nursery)

    async def _find_out(self, question: Question) -> Any:
        match question:
            case ReadZk(ops):
                return await self._zk.read(ops)
            case WriteZk(groups):
                return await self._zk.write(groups)
            case ProbeBrokers(brokers):
                return await self._probe_all(brokers)
            case Pause():
                return await trio.lowlevel.checkpoint()

    def _carry_out(self, effect: Effect, nursery: trio.Nursery) -> None:
        match effect:
            case SendLeaderAndIsr() | SendStopReplica() | SendUpdateMetadata():
                self._senders.send(effect)
            case AddBroker(broker):
                self._senders.add(broker, nursery)
            case RemoveBroker(broker_id):
                self._senders.remove(broker_id)
            case Watched(brokers):
                self._watch(brokers, nursery)
            case Reply(token, value):
                self._answer(token, value)
            case Refuse(token, code, detail):
                self._answer(token, ApiError(code, detail))
            case Schedule(delay_ms, event):
                nursery.start_soon(self._later, delay_ms, event)
            case Resign(reason):
                self.stop(reason)
            case _:
                raise AssertionError(effect)

    def _answer(self, token: int, result: Any) -> None:
        waiter = self._waiters.get(token)
        if waiter is not None:  # else the requester has gone
            waiter.result = result
            waiter.done.set()

    async def _later(self, delay_ms: int, event: Event) -> None:
        await trio.sleep(delay_ms / 1000)
        self.post(event)

    # ---- suspicion

    async def _probe_all(self, brokers: tuple[BrokerInfo, ...]) -> dict[BrokerId, bool]:
        others = tuple(b for b in brokers if b.id != self._broker_id)
        self._suspicion.step(suspicion.Registered(others), monotonic_ms())
        if not self._probe_ms:
            return {}
        silent: dict[BrokerId, bool] = {}

        async def one(broker: BrokerInfo) -> None:
            answer = await self._dial(broker)
            if isinstance(answer, probe.Silence):
                silent[broker.id] = answer.refused
            else:
                answer.close()

        async with trio.open_nursery() as nursery:
            for broker in others:
                nursery.start_soon(one, broker)
        return self._suspicion.at_start(silent)

    async def _dial(self, broker: BrokerInfo) -> Any:
        endpoint = channel_endpoint(broker, self._settings)
        if endpoint is None:
            return probe.Silence(refused=False)
        return await probe.probe(
            self._world.network, endpoint, str(self._broker_id), self._probe_ms
        )

    def _watch(self, brokers: tuple[BrokerInfo, ...], nursery: trio.Nursery) -> None:
        """Keeps one watching task for each registered broker but this one."""
        if not self._probe_ms:
            return
        wanted = {b.id: b for b in brokers if b.id != self._broker_id}
        self._suspicion.step(suspicion.Registered(tuple(wanted.values())), monotonic_ms())
        for broker_id, (info, scope) in list(self._watchers.items()):
            if wanted.get(broker_id) != info:
                scope.cancel()
                del self._watchers[broker_id]
        for broker_id, info in wanted.items():
            if broker_id not in self._watchers:
                scope = trio.CancelScope()
                self._watchers[broker_id] = (info, scope)
                nursery.start_soon(self._watch_one, info, scope)

    async def _watch_one(self, info: BrokerInfo, scope: trio.CancelScope) -> None:
        with scope:
            await probe.watch(
                lambda: self._dial(info),
                self._probe_ms,
                connected=lambda: self._happened(suspicion.Connected(info.id)),
                lost=lambda: self._happened(suspicion.Lost(info.id)),
                failed=lambda refused: self._happened(suspicion.ProbeFailed(info.id, refused)),
            )

    def _happened(self, happening: suspicion.Happening) -> None:
        for verdict in self._suspicion.step(happening, monotonic_ms()):
            known = Suspected if verdict.suspect else Recovered
            self.post(known(verdict.broker_id))


def settings_of(config: Config, broker_id: BrokerId, cluster_id: str) -> Settings:
    return Settings(
        broker_id=broker_id,
        cluster_id=cluster_id,
        delete_topic_enable=config.delete_topic_enable,
        unclean_leader_election_enable=config.unclean_leader_election_enable,
        auto_leader_rebalance_enable=config.auto_leader_rebalance_enable,
        leader_imbalance_per_broker_percentage=config.leader_imbalance_per_broker_percentage,
        leader_imbalance_check_interval_ms=1000 * config.leader_imbalance_check_interval_seconds,
    )
