"""unclean.leader.election.enable is set, on the topic or for the cluster, when a topic's last
replica in sync is gone.  The topic is led again at once, without a restart of anything, and the
records that only the other replica had are lost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient

from highwater.kafka.wire import messages
from tests.integration.oracle.rig import HIGHWATER, Mixed, eventually
from tests.integration.reading import read_all

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]
TOPIC = "unclean"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Mixed]:
    made = Mixed(
        tmp_path / "cluster",
        dict.fromkeys((1, 2, 3), HIGHWATER),
        {"min.insync.replicas": "1", "offsets.topic.replication.factor": "1"},
    )
    with made.background:
        yield made


def send(cluster: Mixed, *values: bytes) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap})
    for value in values:
        producer.produce(TOPIC, value, partition=0)
    assert producer.flush(60) == 0


def given_up(cluster: Mixed) -> None:
    """The controller has seen the end of the leader's session, and has no replica to elect."""
    zk = KazooClient(cluster.cluster.zookeeper_connect)
    zk.start(60)
    try:
        path = f"/brokers/topics/{TOPIC}/partitions/0/state"
        eventually(
            lambda: json.loads(zk.get(path)[0])["leader"] == -1,
            "no leader",
            lambda: cluster.state(TOPIC),
        )
    finally:
        zk.stop()
        zk.close()


def enable(cluster: Mixed, kind: int, name: str) -> None:
    """Sets it as kafka-configs does; without a name, for all brokers."""
    resource = messages.IncrementalAlterConfigsRequest.AlterConfigsResource
    entry = resource.AlterableConfig(
        name="unclean.leader.election.enable", config_operation=0, value="true"
    )
    request = messages.IncrementalAlterConfigsRequest(
        resources=[resource(resource_type=kind, resource_name=name, configs=[entry])],
        validate_only=False,
    )
    answer = cluster.call(3, request, 1)
    assert [r.error_code for r in answer.responses] == [0]


@pytest.mark.parametrize(("kind", "name"), [(2, TOPIC), (4, "")], ids=["topic", "all brokers"])
def test_a_config_change_elects_uncleanly(cluster: Mixed, kind: int, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(TOPIC, 1, replica_assignment=[[1, 2]])])[TOPIC].result(60)

    def is_seen(leader: int, isr: list[int]) -> None:
        def seen() -> bool:
            found = [cluster.metadata([TOPIC], n).topics[0].partitions for n in running()]
            return all(
                p and (p[0].leader_id, sorted(p[0].isr_nodes)) == (leader, isr) for p in found
            )

        eventually(seen, f"leader {leader}, ISR {isr}", lambda: cluster.state(TOPIC))

    def running() -> list[int]:
        return [n for n in cluster.numbers if cluster.cluster.running(f"broker-{n}")]

    is_seen(1, [1, 2])
    send(cluster, b"both have it")
    cluster.background.kill(2)
    is_seen(1, [1])
    send(cluster, b"one has it")
    cluster.background.kill(1)
    cluster.background.start(2)
    is_seen(-1, [1])
    given_up(cluster)
    enable(cluster, kind, name)
    is_seen(2, [2])
    send(cluster, b"the next")
    assert list(read_all(cluster.bootstrap, TOPIC, 1).values()) == [b"both have it", b"the next"]
    cluster.background.start(1)
    is_seen(2, [1, 2])
