"""Producer ids, unique in the cluster and never used twice.

A broker takes a block of a thousand by setting /latest_producer_id_block on the condition of the
version that it read.  Of two brokers that try together one fails and reads again.  Where the
outcome is unknown (the connection was lost) the znode is read again: the block is this broker's if
the znode holds exactly what this broker wrote.

Source: kafka.coordinator.transaction.ProducerIdManager, ZkProducerIdManager.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from highwater.broker.settings.zookeeper_errors import zookeeper_errors
from highwater.kafka import znodes
from highwater.kafka.config import LONG_MAX
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.types import BrokerId, ProducerId
from highwater.kafka.znodes import ProducerIdBlock
from highwater.world.api import BadVersion, ConnectionLoss, NoNode, ZooKeeper

BLOCK_SIZE = 1000


class ProducerIds:
    """Hands out producer ids; `zk` returns the live session, or raises."""

    def __init__(self, broker_id: BrokerId, zk: Callable[[], ZooKeeper]) -> None:
        self._broker_id = broker_id
        self._zk = zk
        self._next = 0
        self._end = -1
        self._lock = trio.Lock()

    async def generate(self) -> ProducerId:
        """The next producer id; raises ApiError where ZooKeeper gives no block."""
        if self._next > self._end:
            async with self._lock:
                if self._next > self._end:  # else another task fetched a block meanwhile
                    with zookeeper_errors():
                        block = await self._take_block()
                    self._next, self._end = block.start, block.end
        producer_id = self._next
        self._next += 1
        return ProducerId(producer_id)

    async def _take_block(self) -> ProducerIdBlock:
        zk = self._zk()
        wrote: ProducerIdBlock | None = None
        while True:
            try:
                data, stat = await zk.get(znodes.PRODUCER_ID_BLOCK)
            except NoNode:
                raise ApiError(
                    ErrorCode.UNKNOWN_SERVER_ERROR, f"{znodes.PRODUCER_ID_BLOCK} does not exist"
                ) from None
            current = znodes.decode_producer_id_block(data)
            if wrote is not None and current == wrote:
                return wrote
            start = 0 if current is None else current.end + 1
            if start > LONG_MAX - BLOCK_SIZE:
                raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "all producer ids are used up")
            block = ProducerIdBlock(self._broker_id, start, start + BLOCK_SIZE - 1)
            try:
                await zk.set(
                    znodes.PRODUCER_ID_BLOCK, znodes.encode_producer_id_block(block), stat.version
                )
            except BadVersion:
                continue
            except ConnectionLoss:
                wrote = block
                continue
            return block
