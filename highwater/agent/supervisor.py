"""The agent's cluster, and what the calls of the control API need of it."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from highwater.agent.agent_settings import AgentSettings
from highwater.agent.errors import ControlError
from highwater.agent.event_feed import Events
from highwater.agent.fault_desk import FaultDesk
from highwater.agent.http_server import Call, HttpServer
from highwater.cluster.faults.stage import Stage
from highwater.cluster.faults.witness import Witness
from highwater.cluster.faults.witnesses import witness_of
from highwater.cluster.interface import Cluster, broker, broker_number
from highwater.cluster.lives import DOWN

Answer = Callable[["Agent", Call], Awaitable[dict[str, Any]]]
"""Gives a call's answer; raises ControlError and nothing else."""
if TYPE_CHECKING:
    from highwater.agent.histories import Histories
    from highwater.chaos.adopted_app import AdoptedApp

LOOK_S = {"process": 0.2, "compose": 2.0}
"""Seconds between two looks for members that have ended by themselves, by runtime."""


@dataclass(slots=True)
class Agent:
    settings: AgentSettings
    cluster: Cluster
    stage: Stage
    desk: FaultDesk
    events: Events
    nursery: trio.Nursery
    """Ends with the agent: for tasks that a call starts and leaves."""
    control: str
    seconds: float
    """How long the start took."""
    token: str = ""
    """The token that each call must carry; empty: none."""
    histories: Histories | None = None
    """None until the first call that concerns a history."""
    apps: dict[int, AdoptedApp] = field(default_factory=dict)
    """Users' applications, by number: their callers start them, and have them killed or paused."""
    last_app: int = 0
    at_end: list[Callable[[], Awaitable[None]]] = field(default_factory=list)
    """Calls that the supervisor makes before the cluster ends."""

    def status(self) -> dict[str, Any]:
        cluster, settings = self.cluster, self.settings
        links = cluster.links
        return {
            "runtime": cluster.runtime,
            "program": settings.program,
            "bootstrap": cluster.bootstrap,
            "zookeeper": cluster.zookeeper_connect,
            "zookeeper_kind": cluster.zookeeper_kind,
            "folder": str(settings.folder),
            "controller": -1 if (known := self.stage.zookeeper.controller) is None else known,
            "brokers": cluster.brokers,
            "members": {member: self._member(member) for member in cluster.members()},
            "cuts": [] if links is None else [list(way) for way in links.cuts],
            "faults": [fired.as_json() for fired in self.desk.open()],
        }

    def tell_ready(self) -> None:
        """Writes into the folder's state.json that this agent serves, and at which URL."""
        self.cluster.write_state(ready=True, control=self.control)

    def _member(self, member: str) -> dict[str, Any]:
        cluster = self.cluster
        cluster.lives.look(cluster.running)
        is_broker = member in map(broker, cluster.brokers)
        metrics = cluster.metrics_address(broker_number(member)) if is_broker else None
        return {
            "state": cluster.lives.states.get(member, DOWN),
            "pid": cluster.pid_of(member),
            "port": cluster.port_of(member),
            "metrics": metrics,
        }

    async def watch_ends(self) -> None:
        """Reports each member that ends by itself as an event; runs for ever."""
        told: set[str] = set()
        while True:
            now = set(await trio.to_thread.run_sync(self.cluster.unexpected_ends))
            for line in sorted(now - told):
                self.events.add(line)
            told = now
            await trio.sleep(LOOK_S[self.cluster.runtime])


async def serve(
    opening: AbstractAsyncContextManager[Agent],
    ready: Callable[[Agent], None],
    *enders: Callable[[], Awaitable[object]],
) -> None:
    """Runs an agent until a signal comes or one of `enders` returns; calls `ready` once it serves.

    While the cluster starts, that cancels the start.  A cluster that serves is not cancelled but
    closed in order, because its brokers hand their leaderships over through the proxies, and a
    cancellation would end the proxies first.
    """
    over = trio.Event()
    starting: trio.CancelScope | None = trio.CancelScope()

    async def end_by(ender: Callable[[], Awaitable[object]]) -> None:
        await ender()
        over.set()
        if starting is not None:
            starting.cancel()

    async with trio.open_nursery() as nursery:
        for ender in (_signal, *enders):
            nursery.start_soon(end_by, ender)
        assert starting is not None
        with starting:
            async with opening as made:
                starting = None
                ready(made)
                made.tell_ready()
                await over.wait()
        nursery.cancel_scope.cancel()


async def _signal() -> None:
    """Returns when this process is told to end."""
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
        async for _ in signals:
            return


@asynccontextmanager
async def agent(settings: AgentSettings, answer: Answer) -> AsyncIterator[Agent]:
    """A running cluster with its control API, whose calls `answer` carries out.  Whatever happens,
    no process or socket is left behind."""
    server = await HttpServer.listen(
        _starting, settings.control_port, settings.control_host, settings.control_token
    )
    try:
        async with cluster_behind(server, settings, answer) as made, trio.open_nursery() as nursery:
            nursery.start_soon(server.serve)
            yield made
            nursery.cancel_scope.cancel()
    finally:
        for listener in server.listeners:
            await listener.aclose()


async def _starting(call: Call) -> dict[str, Any]:
    raise ControlError("refused", "the cluster is starting")


@asynccontextmanager
async def cluster_behind(
    server: HttpServer, settings: AgentSettings, answer: Answer
) -> AsyncIterator[Agent]:
    """A running cluster, whose calls `server` answers from then on."""
    began = time.monotonic()
    earlier = server.answer
    try:
        async with settings.open_cluster() as cluster, _witness(cluster) as witness:
            stage = Stage(cluster, witness, random.Random())
            events = Events()
            async with trio.open_nursery() as nursery:
                desk = FaultDesk(stage, events, nursery)
                made = Agent(
                    settings,
                    cluster,
                    stage,
                    desk,
                    events,
                    nursery,
                    server.url,
                    time.monotonic() - began,
                    server.token,
                )
                server.answer = partial(answer, made)
                nursery.start_soon(made.watch_ends)
                try:
                    yield made
                finally:
                    with trio.CancelScope(shield=True):
                        for work in made.at_end:
                            await work()
                    nursery.cancel_scope.cancel()
    finally:
        server.answer = earlier


@asynccontextmanager
async def _witness(cluster: Cluster) -> AsyncIterator[Witness]:
    witness = witness_of(cluster)
    try:
        await trio.to_thread.run_sync(witness.start)
        await trio.to_thread.run_sync(witness.watch_all_topics)
        yield witness
    finally:
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(witness.close)
