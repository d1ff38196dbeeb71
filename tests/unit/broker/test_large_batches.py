"""Large batches, whose examination takes many steps, keep their order with five in flight."""

from __future__ import annotations

from functools import partial

import pytest
import trio

from highwater.broker.log.validation import SLICE
from highwater.kafka.client.metadata import Cluster
from highwater.kafka.client.producer import Delivery, Outcome, Producer
from highwater.kafka.wire.compression import Compression
from highwater.simulation.cluster import PORT, Shape, SimCluster
from highwater.simulation.workloads.plain_client import SimClient
from highwater.world.sim import Kernel, run_simulation

BATCHES, RECORDS = 12, 3 * SLICE


@pytest.mark.thorough
@pytest.mark.parametrize("codec", list(Compression))
def test_large_batches_keep_their_order(codec: Compression) -> None:
    deliveries: dict[int, Delivery] = {}

    async def main(kernel: Kernel) -> None:
        async with trio.open_nursery() as nursery:
            cluster = SimCluster(kernel, Shape(segment_bytes=1 << 22), nursery)
            for broker_id in cluster.nodes:
                cluster.start(broker_id)
            with trio.fail_after(300):
                while cluster.whole() is not None:
                    await trio.sleep(0.1)
                await writes(cluster)
            nursery.cancel_scope.cancel()

    async def writes(cluster: SimCluster) -> None:
        world = cluster.simulation.start(cluster.simulation.add_host("client"))
        bootstrap = [(node.name, PORT) for node in cluster.nodes.values()]
        await SimClient(world, "admin", bootstrap).create_topic("orders", 1, 3)
        producer = Producer(
            Cluster(world, bootstrap, "producer"),
            linger_s=0.01, batch_bytes=RECORDS * 40, compression=codec,
        )  # fmt: skip
        async with trio.open_nursery() as running:
            await running.start(producer.run)
            for number in range(BATCHES * RECORDS):
                value = b"%030d" % number
                report = partial(deliveries.__setitem__, number)
                await producer.send("orders", value, partition=0, report=report)
            await producer.flush()
            running.cancel_scope.cancel()

    run_simulation(1, main)
    assert {d.outcome for d in deliveries.values()} == {Outcome.ACKED}
    assert [deliveries[n].offset for n in range(BATCHES * RECORDS)] == list(
        range(BATCHES * RECORDS)
    )
    assert {d.attempts for d in deliveries.values()} == {1}
