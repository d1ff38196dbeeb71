"""A broker that stops in order, and the state of its logs afterwards."""

from __future__ import annotations

import trio

from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.record_codec import Record
from highwater.kafka.wire.records import TRANSACTIONAL, build_batch
from highwater.simulation.cluster import Shape
from highwater.simulation.rules import txn_indexes
from highwater.simulation.scenarios.script import Scenario, Stage
from highwater.simulation.workloads.plain_client import Failed
from highwater.simulation.workloads.transactional.transactions_client import (
    TOPIC,
    TRANSACTION,
    TxnClient,
)

NAME = "restless"
ABORTED = TopicPartition(TOPIC, 0)
SLOW_S = 0.1
STOPPED = 1


async def stop_amid_aborts(stage: Stage) -> None:
    """Transactions are aborted all the time while their leader stops, whose disk is slow to flush.
    Meanwhile the next leader goes on, and the first one then follows it.  Once it is back, its
    index of aborted transactions matches its log, so that it may lead again."""
    await stage.start(1, 2, 3, controller=2)
    await stage.insist(lambda: stage.create(TOPIC, [1, 2, 3], 1))
    await stage.whole()
    aborts = 0

    async def abort_on() -> None:
        nonlocal aborts
        client, sequence = stage.new_client_of(TxnClient, "aborter"), 0
        producer = (-1, -1)
        while True:
            try:
                if producer == (-1, -1):
                    producer, sequence = await client.init(NAME, 60_000), 0
                await client.add(NAME, producer, ABORTED)
                record = Record(None, b"never", 1_700_000_000_000)
                batch = build_batch(
                    [record], producer_id=producer[0], producer_epoch=producer[1],
                    base_sequence=sequence, attributes=TRANSACTIONAL,
                )  # fmt: skip
                await client.send(NAME, ABORTED, bytes(batch))
                sequence += 1
                await client.end(NAME, producer, commit=False)
                aborts += 1
            except Failed as failed:
                client.lose(TRANSACTION, NAME)
                client.forget(ABORTED)
                if failed.name != "CONCURRENT_TRANSACTIONS":
                    producer = (-1, -1)
                await trio.sleep(0.005)

    stage.nursery.start_soon(abort_on)
    await stage.until(lambda: aborts >= 5, "transactions are aborted")
    node = stage.cluster.nodes[STOPPED]
    usual, node.host.disk.flush_delay_s = node.host.disk.flush_delay_s, (SLOW_S, SLOW_S)
    stage.cluster.stop(STOPPED)
    before = aborts
    await stage.until(lambda: not node.running, "the leader has stopped")
    stage.check(aborts > before + 5, f"of {aborts} transactions hardly one met with the stop")
    node.host.disk.flush_delay_s = usual
    stage.cluster.start(STOPPED)
    await stage.whole()
    stage.in_order(
        f"broker {STOPPED} shuts down",
        f"broker-{STOPPED}.* {ABORTED}: follows",
        f"broker {STOPPED} has stopped",
        f"broker-{STOPPED} .*starts",
    )
    compared = txn_indexes.compare(stage.cluster.nodes.values(), stage.cluster.rules, [ABORTED])
    stage.check(compared > 3 * before, "hardly an aborted transaction was compared")


SCENARIOS = (
    Scenario("stop-amid-aborts", "a leader stops in order while transactions are aborted",
             Shape(brokers=3, min_isr=2, lag_ms=3000), stop_amid_aborts),
)  # fmt: skip
