"""Whole clusters over TLS and SASL in virtual time: replication, the controller, and a failover."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import pytest
import trio

from highwater.kafka.client.metadata import Cluster
from highwater.kafka.client.producer import Outcome, Producer
from highwater.kafka.config import Config
from highwater.kafka.security.jaas import PLAIN
from highwater.kafka.security.links import open_security
from highwater.kafka.types import TopicPartition
from highwater.simulation.cluster import PORT, Shape, SimCluster
from highwater.simulation.workloads.plain_client import SimClient
from highwater.world.sim import Kernel, SimWorld, run_simulation
from tests.authority import Authority, chain_pem, key_pem

TP = TopicPartition("orders", 0)


@dataclass(frozen=True, slots=True)
class Secured(Shape):
    protocol: str = "SSL"
    authority: Authority | None = None

    def config(self, broker_id: int, host: str) -> Config:
        plain = Shape.config(self, broker_id, host)
        names = f"PLAINTEXT:{self.protocol},CONTROLLER:{self.protocol}"
        return replace(plain, listener_security_protocol_map=names, originals=self.properties(host))

    def properties(self, host: str) -> dict[str, str]:
        assert self.authority is not None
        leaf = self.authority.issue(host, common_name=host)
        jaas = f'{PLAIN} required username="broker" password="secret" user_broker="secret";'
        return {
            "ssl.keystore.key": key_pem(leaf),
            "ssl.keystore.certificate.chain": chain_pem(leaf),
            "ssl.truststore.certificates": self.authority.certificates,
            "ssl.client.auth": "required",
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.jaas.config": jaas,
        }


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL", "SASL_PLAINTEXT"])
def test_brokers_replicate_and_fail_over(protocol: str, tmp_path: Path) -> None:
    shape = Secured(segment_bytes=1_000_000, protocol=protocol, authority=Authority(tmp_path))

    async def main(kernel: Kernel) -> None:
        async with trio.open_nursery() as nursery:
            cluster = SimCluster(kernel, shape, nursery)
            for broker_id in cluster.nodes:
                cluster.start(broker_id)
            with trio.fail_after(300):
                while cluster.whole() is not None:
                    await trio.sleep(0.1)
                await scenario(cluster)
            assert cluster.rules.violation is None
            nursery.cancel_scope.cancel()

    async def scenario(cluster: SimCluster) -> None:
        host = cluster.simulation.add_host("client")
        plain = cluster.simulation.start(host)
        world = cast("SimWorld", open_security(shape.config(9, "client"), plain).brokers)
        bootstrap = [(node.name, PORT) for node in cluster.nodes.values()]
        await SimClient(world, "admin", bootstrap).create_topic("orders", 1, 3)
        producer = Producer(
            Cluster(world, bootstrap, "producer"), request_timeout_s=3.0, delivery_timeout_s=100.0
        )
        outcomes: list[Outcome] = []
        async with trio.open_nursery() as running:
            await running.start(producer.run)
            for number in range(10):
                if number == 5:
                    await producer.flush()
                    cluster.kill(cluster.leader_of(TP) or 1)
                await producer.send(
                    "orders",
                    bytes(20_000),
                    partition=0,
                    report=lambda d: outcomes.append(d.outcome),
                )
            await producer.flush()
            running.cancel_scope.cancel()
        assert outcomes == [Outcome.ACKED] * 10

    run_simulation(1, main)
