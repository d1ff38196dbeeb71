"""One suite, two worlds: each contract test runs on the real and the simulated world.

A test is an async function of an `Env`: `in_world` and `in_world_with_zookeeper` run it.  Java's
ZooKeeper is the one at HIGHWATER_TEST_ZOOKEEPER (host:port), or one that is started from the jars
that are found; without either, that third of the ZooKeeper contract is skipped.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trio
from kazoo.client import KazooClient

from highwater.child_processes import StartError
from highwater.cluster.ports import free_ports
from highwater.cluster.processes import zookeeper_process as zookeeper
from highwater.world.api import World, ZooKeeper
from highwater.world.real import RealWorld
from highwater.world.sim import ZOOKEEPER, Kernel, Simulation, run_simulation
from highwater.zookeeper.sockets import Server
from tests.running import Body, run_by
from tests.waiting import eventually


@dataclass
class Env:
    """The world and helpers of one contract test."""

    world: World
    folder: str
    other_world: World
    """A second process, on the same machine."""
    connect: str = ""
    prefix: str = ""
    expire: Callable[[Any], Awaitable[None]] | None = None
    host: str = "127.0.0.1"

    def session(self, timeout_ms: int = 4000) -> AbstractAsyncContextManager[ZooKeeper]:
        return self.world.zookeeper(self.connect + self.prefix, timeout_ms, 5000)


Case = Callable[[Body], None]
in_world, in_world_with_zookeeper = run_by("world_case"), run_by("zookeeper_case")


async def _expire_real(zk: Any) -> None:
    """Another client of the same session closes it: no server has another way to end it."""
    client = KazooClient(hosts=zk._client.hosts[0][0] + f":{zk._client.hosts[0][1]}",
                         client_id=zk._client.client_id, timeout=4)  # fmt: skip
    await trio.to_thread.run_sync(client.start)
    await trio.to_thread.run_sync(client.stop)
    await trio.to_thread.run_sync(client.close)


@pytest.fixture(scope="session")
def zookeeper_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    given = os.environ.get("HIGHWATER_TEST_ZOOKEEPER")
    if given:
        yield given
        return
    port = free_ports(1)[0]
    folder = tmp_path_factory.mktemp("zookeeper")
    try:
        command = zookeeper.prepare(folder, port, 200)
    except StartError as error:
        pytest.skip(str(error))
    with (
        (folder / "out").open("w") as out,
        subprocess.Popen(command, stdout=out, stderr=out) as server,
    ):
        try:

            def answers() -> bool:
                assert server.poll() is None, (folder / "out").read_text()
                return zookeeper.answers(port)

            eventually(answers, "ZooKeeper answers", (folder / "out").read_text, 60)
            yield f"127.0.0.1:{port}"
        finally:
            server.kill()


@pytest.fixture(params=["real", "sim"])
def world_case(request: pytest.FixtureRequest, tmp_path: Path) -> Case:
    """For network and disk."""
    if request.param == "real":

        def run_real(body: Body) -> None:
            async def main() -> None:
                with trio.fail_after(60):
                    await body(Env(RealWorld(1), str(tmp_path), RealWorld(2)))

            trio.run(main)

        return run_real
    return _run_sim


@pytest.fixture(params=["real", "embedded", "sim"])
def zookeeper_case(request: pytest.FixtureRequest) -> Case:
    """For ZooKeeper: Java's, our own server, and the simulated one."""
    if request.param == "sim":
        return _run_sim
    if request.param == "embedded":
        return _run_embedded
    address = request.getfixturevalue("zookeeper_address")

    def run_real(body: Body) -> None:
        async def main() -> None:
            world = RealWorld(1)
            prefix = f"/contract-{os.getpid()}-{world.clock.perf_ns()}"
            with trio.fail_after(60):
                await body(Env(world, "", world, address, prefix, _expire_real))

        trio.run(main)

    return run_real


def _run_embedded(body: Body) -> None:
    async def main() -> None:
        world = RealWorld(1)
        async with trio.open_nursery() as nursery:
            port = await nursery.start(Server(tick_ms=200).serve, 0)
            with trio.fail_after(60):
                await body(Env(world, "", world, f"127.0.0.1:{port}", "/it", _expire_real))
            nursery.cancel_scope.cancel()

    trio.run(main)


def _run_sim(body: Body) -> None:
    async def main(kernel: Kernel) -> None:
        simulation = Simulation(kernel)
        host = simulation.add_host("machine")
        world, other = simulation.start(host), simulation.start(host)
        world.disk.make_dirs("/data")

        async def expire(zk: Any) -> None:
            simulation.zookeeper.expire(zk.session_id)

        env = Env(world, "/data", other, ZOOKEEPER, "", expire)
        failure: list[BaseException] = []

        async def program() -> None:
            try:
                with trio.fail_after(600):
                    await body(env)
            except BaseException as error:
                failure.append(error)
                raise

        await world.process.run(program)
        if failure:
            raise failure[0]

    for seed in range(5):
        run_simulation(seed, main)
