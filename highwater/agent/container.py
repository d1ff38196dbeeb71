"""`python -I -m highwater.agent.container`: what the image highwater/cluster runs.

The ports by which a container is reached may be known only after its start.  So the control API
starts first and waits for POST /v1/cluster, which has the addresses that the brokers shall
advertise; then ZooKeeper and the brokers start.  HIGHWATER_ADVERTISED (HOST:PORT,...) gives the
addresses beforehand instead.

HIGHWATER_CONTROL_TOKEN is the token that calls carry; without it, one is made and kept in FOLDER.
`... container healthy` is the image's health check.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trio

from highwater.agent import client, routing
from highwater.agent.agent_settings import AgentSettings
from highwater.agent.control_token import FILE, VARIABLE, keep_token, known_token, token_of
from highwater.agent.errors import ControlError, control_error
from highwater.agent.http_server import Call, HttpServer
from highwater.agent.openapi import description
from highwater.agent.routes import CLUSTER, OPENAPI, ROUTES, answer
from highwater.agent.supervisor import Agent, cluster_behind, serve
from highwater.cluster.processes import forked_members

FOLDER = Path("/var/lib/highwater")
CONTROL_PORT, FIRST_PORT, ZOOKEEPER_PORT = 9990, 9092, 2181
ADVERTISED = "HIGHWATER_ADVERTISED"
EVERYWHERE = "0.0.0.0"


@dataclass(slots=True)
class Order:
    """A request to start the cluster, and its result."""

    body: dict[str, Any]
    done: trio.Event = field(default_factory=trio.Event)
    error: Exception | None = None
    status: dict[str, Any] = field(default_factory=dict)

    def settings(self) -> AgentSettings:
        many = len(self.body["advertised"])
        ports = list(range(FIRST_PORT, FIRST_PORT + many))
        fixed = {"folder": str(FOLDER / "cluster"), "brokers": many, "external_ports": ports}
        return AgentSettings.from_json({**self.body, **fixed, "zookeeper_port": ZOOKEEPER_PORT})


class Gate:
    """Answers calls until there is a cluster, and hands on the request to start one."""

    def __init__(self) -> None:
        self._send, self.orders = trio.open_memory_channel[Order](0)
        self._busy = False

    async def answer(self, call: Call) -> dict[str, Any]:
        route, asked = routing.find(ROUTES, call)
        if route is OPENAPI:
            return description(ROUTES)
        if self._busy:
            raise ControlError("refused", "the cluster is starting")
        if route is not CLUSTER:
            raise ControlError("refused", "there is no cluster yet: POST /v1/cluster starts it")
        order = Order(asked.body)
        self._busy = True
        try:
            await self._send.send(order)
            await order.done.wait()
        finally:
            self._busy = False
        if order.error is not None:
            raise control_error(order.error) from order.error
        return order.status


@asynccontextmanager
async def opened(token: str, advertised: str) -> AsyncIterator[Agent]:
    """The agent of the first order that succeeds.  An order from the environment (`advertised`) is
    the only one; if it fails, its error is raised."""
    gate = Gate()
    server = await HttpServer.listen(gate.answer, CONTROL_PORT, EVERYWHERE, token)
    async with trio.open_nursery() as nursery, AsyncExitStack() as held:
        nursery.start_soon(server.serve)
        made: Agent | None = None
        if advertised:
            order = Order({"advertised": advertised.split(",")})
            made = await held.enter_async_context(cluster_behind(server, order.settings(), answer))
        else:
            print(f"control API on port {CONTROL_PORT}; POST /v1/cluster starts the cluster")
        while made is None:
            order = await gate.orders.receive()
            try:
                behind = cluster_behind(server, order.settings(), answer)
                made = await held.enter_async_context(behind)
                order.status = made.status()
            except Exception as error:
                order.error = error
            order.done.set()
        yield made
        await held.aclose()
        nursery.cancel_scope.cancel()


def _ready(made: Agent) -> None:
    print(f"{len(made.cluster.brokers)} brokers and ZooKeeper serve after {made.seconds:.1f} s")
    print(f"bootstrap servers  {made.cluster.bootstrap}")
    made.events.listener = lambda event: print(event["at"][11:19], event["text"])


def healthy(folder: Path) -> str:
    """Empty if the control API answers, and either has a cluster or waits for the call that starts
    it; else the reason why not.

    With HIGHWATER_ADVERTISED no such call comes, so there must be a cluster.  A broker that a fault
    has killed does not make the container unhealthy.
    """
    control = client.Control(f"http://127.0.0.1:{CONTROL_PORT}", token_of(folder))
    try:
        control.status()
    except client.ControlError as error:
        waits = "POST /v1/cluster" in error.message and not os.environ.get(ADVERTISED)
        return "" if waits else error.message
    return ""


def main() -> int:
    if sys.argv[1:] == ["healthy"]:
        wrong = healthy(FOLDER)
        print(wrong or "healthy")
        return bool(wrong)
    try:
        forked_members.begin("highwater", "process", FOLDER, "test")
        given = os.environ.pop(VARIABLE, "")
        token = known_token(FOLDER, EVERYWHERE, given)
        keep_token(FOLDER, token)
        if not given:
            print(f"the control API's token is in {FOLDER / FILE}")
        trio.run(serve, opened(token, os.environ.get(ADVERTISED, "")), _ready)
    except Exception as error:
        print(f"highwater: {control_error(error).message}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
