"""The benchmarks' topics, made and deleted by librdkafka."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import trio

from highwater.bench.figures.sides import BenchFailed
from highwater.client_calls import ClientHangs, within

WHOLE_S = 30
ANSWER_S = 90
"""Longer than librdkafka waits for an answer to an admin request."""


def admin_client(bootstrap: str) -> Any:
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def create_topic(
    bootstrap: str, topic: str, partitions: int, replicas: int, config: Mapping[str, str]
) -> None:
    """Returns when every partition has a leader and all its replicas are in sync."""
    from confluent_kafka.admin import NewTopic

    admin, phase = admin_client(bootstrap), f"making the topic {topic}"
    wanted = NewTopic(topic, partitions, replicas, config=dict(config))
    try:
        made = admin.create_topics([wanted])[topic]
        within(phase, ANSWER_S, made.result)
    except ClientHangs:
        raise
    except Exception as error:
        raise BenchFailed(f"topic {topic} could not be created: {error}") from error
    deadline = time.monotonic() + WHOLE_S
    while time.monotonic() < deadline:
        told = within(phase, ANSWER_S, admin.list_topics, topic, 10)
        seen = told.topics[topic].partitions.values()
        whole = [p for p in seen if p.leader >= 0 and len(p.isrs) == replicas]
        if len(whole) == partitions:
            return
        time.sleep(0.05)
    raise BenchFailed(f"topic {topic} was not whole {WHOLE_S} s after its creation")


def delete_topic(bootstrap: str, topic: str) -> None:
    admin = admin_client(bootstrap)  # its futures fail once it is deleted
    try:
        deleted = admin.delete_topics([topic])[topic]
        within(f"deleting the topic {topic}", ANSWER_S, deleted.result)
    except ClientHangs:
        raise
    except Exception as error:
        raise BenchFailed(f"topic {topic} could not be deleted: {error}") from error


async def until_gone(folder: Path, topic: str) -> None:
    """Waits until a deleted topic's folders are gone, also renamed (<partition>.<id>-delete)."""
    with trio.move_on_after(60):
        while any(folder.glob(f"broker-*/data/{topic}-*")):
            await trio.sleep(0.05)
        return
    raise BenchFailed(f"the files of topic {topic} are still there 60 s after its deletion")
