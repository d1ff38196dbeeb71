"""The benchmarks' topics, made, changed and deleted by librdkafka."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from highwater.bench.figures.sides import BenchFailed, until
from highwater.client_calls import apart

WHOLE_S = 30
ANSWER_S = 90
"""Longer than librdkafka waits for an answer to an admin request."""


def admin_client(bootstrap: str) -> Any:
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


async def _done(phase: str, bootstrap: str, ask: Callable[[Any], Mapping[Any, Any]]) -> None:
    """Asks for one thing, and waits until it is done; raises BenchFailed with the error."""
    from confluent_kafka import KafkaException

    admin = admin_client(bootstrap)  # its futures fail once it is deleted
    (future,) = ask(admin).values()
    try:
        await apart(phase, ANSWER_S, future.result)
    except KafkaException as error:
        raise BenchFailed(f"{phase}: {error}") from error


async def create_topic(
    bootstrap: str,
    topic: str,
    partitions: int,
    replicas: int,
    config: Mapping[str, str],
    brokers: list[int] | None = None,
) -> None:
    """Returns when every partition has a leader and all its replicas are in sync.

    `brokers`: those of the only partition, of which the first one leads; else Kafka places them.
    """
    from confluent_kafka.admin import NewTopic

    where = {"replica_assignment": [brokers]} if brokers else {"replication_factor": replicas}
    phase = f"making the topic {topic}"
    wanted = NewTopic(topic, partitions, config=dict(config), **where)
    await _done(phase, bootstrap, lambda admin: admin.create_topics([wanted]))
    admin = admin_client(bootstrap)

    async def whole() -> bool:
        told = await apart(phase, ANSWER_S, admin.list_topics, topic, 10)
        seen = told.topics[topic].partitions.values()
        return partitions == sum(p.leader >= 0 and len(p.isrs) == replicas for p in seen)

    await until(whole, f"topic {topic} is whole", WHOLE_S)


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
        phase, bootstrap, lambda admin: admin.delete_topics([topic], operation_timeout=WHOLE_S)
    )


async def until_gone(folder: Path, topic: str) -> None:
    """Waits until a deleted topic's folders are gone, also renamed (<partition>.<id>-delete)."""

    async def gone() -> bool:
        return not any(folder.glob(f"broker-*/data/{topic}-*"))

    await until(gone, f"the files of the deleted topic {topic} are gone", 60)
