"""A broker with two log directories: its replicas move from one to the other under load, a kill -9
comes in between, and Apache Kafka starts on what is there then.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from highwater.kafka.wire import messages
from tests.integration.oracle.load import Load, lost
from tests.integration.oracle.rig import APACHE, HIGHWATER, PARTITIONS, Mixed, eventually
from tests.integration.reading import read_all

pytestmark = [
    pytest.mark.integration, pytest.mark.apache, pytest.mark.slow, pytest.mark.timeout(300),
]  # fmt: skip
TOPIC = "moved"


@pytest.fixture
def dirs(tmp_path: Path) -> list[str]:
    return [str(tmp_path / name) for name in ("one", "two")]


@pytest.fixture
def cluster(tmp_path: Path, dirs: list[str], apache_tool: Any) -> Iterator[Mixed]:
    properties = {
        "log.dirs": ",".join(dirs),
        "log.segment.bytes": "100000",
        "offsets.topic.replication.factor": "1",
    }
    made = Mixed(tmp_path / "cluster", {1: HIGHWATER}, properties)
    with made.background:
        yield made


def replicas(cluster: Mixed) -> dict[int, list[tuple[str, bool]]]:
    """The place of each partition's replica, and whether it is a future one."""
    found: dict[int, list[tuple[str, bool]]] = {}
    answer = cluster.call(1, messages.DescribeLogDirsRequest(topics=None), 4)
    for result in answer.results:
        assert result.error_code == 0
        assert 0 < result.usable_bytes <= result.total_bytes
        for topic in result.topics:
            for p in topic.partitions if topic.name == TOPIC else ():
                found.setdefault(p.partition_index, []).append((result.log_dir, p.is_future_key))
    return found


def are_there(cluster: Mixed, wanted: dict[int, str]) -> bool:
    return replicas(cluster) == {p: [(path, False)] for p, path in wanted.items()}


def move(cluster: Mixed, wanted: dict[int, str]) -> None:
    directory = messages.AlterReplicaLogDirsRequest.AlterReplicaLogDir
    request = messages.AlterReplicaLogDirsRequest(
        dirs=[
            directory(
                path=path,
                topics=[directory.AlterReplicaLogDirTopic(name=TOPIC, partitions=[p])],
            )
            for p, path in wanted.items()
        ]
    )
    answer = cluster.call(1, request, 2)
    assert {p.error_code for t in answer.results for p in t.partitions} == {0}


def test_replicas_move_under_load_and_over_a_kill(cluster: Mixed, dirs: list[str]) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(60)
    eventually(lambda: cluster.whole(TOPIC), "it is led", lambda: cluster.state(TOPIC))
    load = Load(cluster.bootstrap, TOPIC, PARTITIONS)
    load.more()
    for kill in (False, True, False):
        at = {p: where for p, [(where, _)] in replicas(cluster).items()}
        assert len(at) == PARTITIONS
        wanted = {p: next(d for d in dirs if d != where) for p, where in at.items()}
        move(cluster, wanted)
        if kill:
            cluster.background.kill(1)
            cluster.background.start(1)
        load.more()
        eventually(
            partial(are_there, cluster, wanted),
            "every replica is where it was wanted",
            lambda: str(replicas(cluster)),
        )
    load.more()
    load.finish()
    assert lost(load, read_all(cluster.bootstrap, TOPIC, PARTITIONS)) == []
    cluster.background.stop(1)
    cluster.become({1: APACHE})
    cluster.background.start(1)
    eventually(lambda: cluster.whole(TOPIC), "it is led", lambda: cluster.state(TOPIC))
    assert lost(load, read_all(cluster.bootstrap, TOPIC, PARTITIONS)) == []
