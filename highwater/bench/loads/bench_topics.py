"""The benchmarks' topics, made, changed and deleted by librdkafka."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import trio

from highwater.bench.figures.sides import BenchFailed, until
from highwater.client_calls import within

SHOWN_S = 30
ANSWER_S = 90
"""Longer than librdkafka waits for an answer to an admin request."""


def admin_client(bootstrap: str) -> Any:
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


async def _done(
    phase: str,
    bootstrap: str,
    ask: Callable[[Any], Mapping[Any, Any]],
    shows: Callable[[Any], bool] = lambda _: True,
) -> None:
    """Asks for one thing, and waits until it is done and the brokers show it.  Raises BenchFailed.

    All of it is in a worker thread, as the end of an admin client waits, too.
    """
    from confluent_kafka import KafkaException

    def work() -> None:
        admin = admin_client(bootstrap)  # its futures fail once it is deleted
        (future,) = ask(admin).values()
        try:
            within(phase, ANSWER_S, future.result)
        except KafkaException as error:
            raise BenchFailed(f"{phase}: {error}") from error
        deadline = time.monotonic() + SHOWN_S
        while not shows(admin):
            if time.monotonic() > deadline:
                raise BenchFailed(f"{phase}: it is not whole {SHOWN_S} s later")
            time.sleep(0.05)

    await trio.to_thread.run_sync(work)


async def create_topic(
    bootstrap: str,
    topic: str,
    partitions: int,
    replicas: int,
    config: Mapping[str, str],
    brokers: list[int] | None = None,
) -> None:
    """Returns when every partition has a leader and all its replicas are in sync.

    `brokers`: those of every partition, of which the first one leads; else Kafka places them.
    """
    from confluent_kafka.admin import NewTopic

    where = (
        {"replica_assignment": [brokers] * partitions}
        if brokers
        else {"replication_factor": replicas}
    )
    phase = f"making the topic {topic}"
    wanted = NewTopic(topic, partitions, config=dict(config), **where)

    def whole(admin: Any) -> bool:
        told = within(phase, ANSWER_S, admin.list_topics, topic, 10)
        seen = told.topics[topic].partitions.values()
        return partitions == sum(p.leader >= 0 and len(p.isrs) == replicas for p in seen)

    await _done(phase, bootstrap, lambda admin: admin.create_topics([wanted]), whole)


async def alter_topic(bootstrap: str, topic: str, config: Mapping[str, str]) -> None:
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in config.items()
    ]
    wanted = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
    phase = f"altering the topic {topic}"
    await _done(phase, bootstrap, lambda admin: admin.incremental_alter_configs([wanted]))


async def grow_topic(bootstrap: str, topic: str, partitions: int) -> None:
    from confluent_kafka.admin import NewPartitions

    wanted, phase = NewPartitions(topic, partitions), f"growing the topic {topic}"
    await _done(phase, bootstrap, lambda admin: admin.create_partitions([wanted]))


async def delete_topic(bootstrap: str, topic: str) -> None:
    """Returns when the brokers no longer name it; its files stay for a while (`until_gone`)."""
    phase = f"deleting the topic {topic}"
    await _done(
        phase, bootstrap, lambda admin: admin.delete_topics([topic], operation_timeout=SHOWN_S)
    )


async def until_gone(folder: Path, topic: str) -> None:
    """Waits until a deleted topic's folders are gone, also renamed (<partition>.<id>-delete)."""

    async def gone() -> bool:
        return not any(folder.glob(f"broker-*/data/{topic}-*"))

    await until(gone, f"the files of the deleted topic {topic} are gone", 60)
