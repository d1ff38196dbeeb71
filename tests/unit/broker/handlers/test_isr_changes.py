"""An ISR change on its way to the controller, while the broker's session comes and goes."""

from __future__ import annotations

from typing import Any

import trio

from highwater.kafka import znodes
from highwater.kafka.types import TopicPartition
from tests.unit.broker.handlers.conftest import Led, in_broker

TP = TopicPartition("t", 0)


class Node(Led):
    topics = ("t",)


async def shrunk(b: Any) -> None:
    """Returns in the instant when the ISR without broker 2, which never fetches, is written."""
    state = znodes.state_path(TP)
    for path in (znodes.topic_path("t"), znodes.partitions_path("t"), znodes.partition_path(TP)):
        await b.zk.create(path)
    await b.zk.create(state)
    await b.zk.set(state, b"")  # version 1, as `Node` says in LeaderAndIsr
    await Node(b).role(1, (1, 2))
    while (await b.zk.get(state))[1].version == 1:
        await trio.sleep(0.001)
    while len(b.services.replicas.partitions[TP].isr.members) > 1:
        await trio.sleep(0.001)


@in_broker()
async def test_a_change_is_told_when_there_is_a_session_again(b: Any) -> None:
    async with trio.open_nursery() as nursery:
        await nursery.start(b.services.replicas.run)
        await shrunk(b)
        b.services.session = None
        await trio.sleep(10)
        assert await b.zk.children(znodes.ISR_CHANGES) == []
        b.services.session = b.zk
        while not (found := await b.zk.children(znodes.ISR_CHANGES)):
            await trio.sleep(0.1)
        data, _ = await b.zk.get(f"{znodes.ISR_CHANGES}/{found[0]}")
        assert znodes.decode_isr_change(data) == [TP]
        nursery.cancel_scope.cancel()
