"""Two transactions when the faults are over: one that must not begin, and one that must end.

* T7: a batch at a partition that its producer has not added to a transaction is refused.  No marker
  would ever come there, and the LSO would stand still for good, so the leader asks the transaction
  coordinator before it appends the first batch of a transaction (KIP-890).
* L1: a transaction of a new producer can be committed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.record_codec import Record
from highwater.kafka.wire.records import TRANSACTIONAL, build_batch
from highwater.simulation.rules.findings import Book
from highwater.simulation.workloads.plain_client import STAMP_MS, Failed
from highwater.simulation.workloads.transactional.transactions_client import (
    TOPIC,
    TRANSACTION,
    TxnClient,
)

TP = TopicPartition(TOPIC, 0)
PATIENCE_S = 30.0
REFUSAL = "INVALID_TXN_STATE"


async def judge(client: TxnClient, rules: Book) -> None:
    """Breaks T7 or L1 where one of them goes wrong, or is not decided in time."""
    error = await _until_decided(client, "stray", lambda: _stray(client))
    if error != REFUSAL:
        rules.broken("T7", f"{TP} and a batch outside of any transaction: {error}")
    error = await _until_decided(client, "last", lambda: _commit(client))
    if error != "taken":
        rules.broken("L1", f"no transaction can be committed: {error}")


async def _until_decided(client: TxnClient, name: str, call: Callable[[], Awaitable[None]]) -> str:
    """`taken`, the refusal, or the last error."""
    error, give_up = "nothing", trio.current_time() + PATIENCE_S
    while trio.current_time() < give_up:
        try:
            await call()
            return "taken"
        except Failed as failed:
            error = failed.name
            if error == REFUSAL and name == "stray":
                break
            client.lose(TRANSACTION, name)
            client.forget(TP)
            await client.pause(0.02, 0.2)
    return error


async def _stray(client: TxnClient) -> None:
    await _send(client, "stray", await client.init("stray", 60_000))


async def _commit(client: TxnClient) -> None:
    producer = await client.init("last", 60_000)
    await client.add("last", producer, TP)
    await _send(client, "last", producer)
    await client.end("last", producer, commit=True)


async def _send(client: TxnClient, name: str, producer: tuple[int, int]) -> None:
    batch = build_batch(
        [Record(None, name.encode(), STAMP_MS)], producer_id=producer[0],
        producer_epoch=producer[1], base_sequence=0, attributes=TRANSACTIONAL,
    )  # fmt: skip
    await client.send(name, TP, bytes(batch))
