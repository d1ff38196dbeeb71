"""A session's ups and downs, and the number of its answered requests, as Kafka counts them."""

from __future__ import annotations

import pytest
import trio

from highwater.base.metrics import Registry
from highwater.broker.measure.zookeeper_metrics import ZooKeeperMetrics
from highwater.world.api import Check, Create, NoNode, SessionExpired
from highwater.world.sim import ZOOKEEPER, Kernel, Simulation, run_simulation

_LISTENER = "kafka_server_sessionexpirelistener_zookeeper"
_LATENCY = "kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms"


def values(registry: Registry) -> dict[str, float]:
    return {
        family.name + sample.suffix: sample.value
        for family in registry.families(0)
        for sample in family.samples
    }


def test_requests_and_the_sessions_states_are_counted() -> None:
    async def main(kernel: Kernel) -> None:
        simulation = Simulation(kernel)
        world = simulation.start(simulation.add_host("machine"))

        async def program() -> None:
            registry = Registry()
            metrics = ZooKeeperMetrics(registry, world.clock.perf_ns)
            async with world.zookeeper(ZOOKEEPER, 4000, 4000) as session:
                zk = metrics.measured(session)
                assert (zk.session_id, zk.session_timeout_ms) == (session.session_id, 4000)
                await zk.create("/a", b"one")
                assert (await zk.get("/a"))[0] == b"one"
                await zk.set("/a", b"two")
                assert await zk.exists("/a") is not None
                assert await zk.children("/") == ["a"]
                await zk.multi([Check("/a", 1), Create("/b")])
                await zk.delete("/b")
                with pytest.raises(NoNode):
                    await zk.get("/b")
                found = values(registry)
                assert found[_LATENCY + "_count"] == 7, "those that were answered"
                assert found[f"{_LISTENER}syncconnectspersec"] == 1
                assert found[f"{_LISTENER}expirespersec"] == 0
                simulation.zookeeper.expire(zk.session_id)
                with trio.fail_after(60):
                    while not zk.expired:
                        await trio.sleep(0.1)
                with pytest.raises(SessionExpired):
                    await zk.get("/a")
            found = values(registry)
            assert found[f"{_LISTENER}expirespersec"] == 1
            assert found[f"{_LISTENER}authfailurespersec"] == 0

        await world.process.run(program)

    run_simulation(1, main)
