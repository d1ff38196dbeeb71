"""Reads partitions from their beginning, by librdkafka, for as long as a run lasts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import trio
from confluent_kafka import Consumer, KafkaError, TopicPartition

from highwater.client_calls import SOON_S, ClientHangs, apart

CONSUME_S = 0.05


async def follow(
    phase: str,
    bootstrap: str,
    isolation: str,
    places: Callable[[Any], Awaitable[list[TopicPartition]]],
    take: Callable[[Any], None],
    left: list[str],
    passed: Callable[[int, int], None] | None = None,
) -> None:
    """Reads these places from their beginnings, until cancelled.  Calls that do not return are
    added to `left`; `passed` is called with a partition and the offset at which it ends for now
    (under read_committed, the last stable offset).

    The loop carries the records that the client waits for, so each call of the client is made in a
    thread.  No call is cancelled, because two threads must not use one consumer.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "highwater-watcher",  # the client insists on one; it is never joined
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": isolation,
            "enable.partition.eof": passed is not None,
            "log_level": 0,
        }
    )
    try:
        found = await places(consumer)
        with trio.CancelScope(shield=True):
            await apart(phase, SOON_S, consumer.assign, found)
        while True:
            with trio.CancelScope(shield=True):
                came = await apart(phase, SOON_S, consumer.consume, 500, CONSUME_S)
            for message in came:
                if (error := message.error()) is None:
                    take(message)
                elif passed is not None and error.code() == KafkaError._PARTITION_EOF:
                    passed(message.partition(), message.offset())
            await trio.lowlevel.checkpoint()
    except ClientHangs as error:
        left.append(str(error))
        raise
    finally:
        if not left:
            with trio.CancelScope(shield=True):
                await _close(phase, consumer, left)


async def _close(phase: str, consumer: Any, left: list[str]) -> None:
    try:
        await apart(phase, SOON_S, consumer.close)
    except ClientHangs as error:  # the records that came are known all the same
        left.append(str(error))
