"""A member asks for its offsets just when its coordinator has moved, and is refused.

Its OffsetFetch is held on the way until another broker coordinates the group; the old one then
answers NOT_COORDINATOR, from version 2 on without any topic, as Apache Kafka does
(tests/integration/oracle: "of a group coordinated elsewhere").
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Place

from highwater.broker.coordinator.shard import partition_for
from highwater.chaos.workloads.group_run import GroupRun, collect
from highwater.cluster.client_files import Way
from highwater.cluster.leader_moves import move_leader
from highwater.cluster.links.link_rules import Action, Rule
from highwater.kafka.types import TopicPartition
from highwater.verdict import duck, tables
from tests.background import BackgroundCluster
from tests.integration.groups.test_groups import coordinator_of
from tests.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
RECORDS, COMMITTED = 40, 30
WITHIN_S = 90


def fill(cluster: BackgroundCluster, topic: str, group: str) -> None:
    """Writes RECORDS records to one partition, of which the group has committed COMMITTED."""
    cluster.create_topic(topic)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
    for number in range(RECORDS):
        producer.produce(topic, f"v{number}".encode(), partition=0)
    assert producer.flush(WITHIN_S) == 0
    committer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": group})
    committer.commit(offsets=[Place(topic, 0, COMMITTED)], asynchronous=False)
    committer.close()


def move_coordinator(cluster: BackgroundCluster, group: str) -> None:
    old = coordinator_of(cluster, group)
    tp = TopicPartition("__consumer_offsets", partition_for(group, 3))
    wanted = next(n for n in cluster.isr_of(tp.topic, tp.partition) if n != old)
    trio.run(move_leader, cluster.cluster, tp, wanted, list(cluster.cluster.brokers))
    eventually(lambda: coordinator_of(cluster, group) == wanted, "another coordinator")


def first_read(group: GroupRun) -> int | None:
    return next((line["offset"] for line in group.lines() if line["f"] == "poll"), None)


def refused_member(
    cluster: BackgroundCluster, folder: Path, client: str, topic: str, group_id: str
) -> tuple[GroupRun, int]:
    """A member whose OffsetFetch comes too late: the group, and the offset that it then reads
    first."""
    links = cluster.cluster.links
    assert links is not None
    old = f"broker-{coordinator_of(cluster, group_id)}"
    request = links.add(Rule(Action.HOLD, "OffsetFetch", source="clients", target=old))
    way = Way(bootstrap=cluster.bootstrap_servers)
    group = GroupRun(folder, way, group_id, topic, client, session_ms=30_000)
    group.join()

    def held() -> bool:
        assert not group.dead(), group.dead()
        return request.matched > 0

    try:
        eventually(held, "its OffsetFetch is held", within_s=WITHIN_S)
        move_coordinator(cluster, group_id)
        cluster.heal()
        eventually(lambda: first_read(group) is not None, "it reads", group.lines, WITHIN_S)
        assert request.arrived == 1, "the old coordinator was asked"
    finally:
        group.end()
    begun = first_read(group)
    assert begun is not None
    return group, begun


def judged(run: Path, group: GroupRun, lines: list[dict[str, Any]]) -> dict[str, int]:
    """The findings of G2 in a history that begins with the group's commit: kind -> number."""
    collect(run, [group])
    commit = {"process": "committer", "client": "confluent-kafka", "f": "commit",
              "topic": group.topic, "partition": 0, "offset": COMMITTED, "t_ns": 1,
              "group_id": group.group, "op": 1}  # fmt: skip
    whole = [{**commit, "type": "invoke"}, {**commit, "type": "ok"}, *lines]
    text = "".join(
        json.dumps({"run": "groups", "seed": 0, **line, "index": number}) + "\n"
        for number, line in enumerate(whole)
    )
    (run / "history.jsonl").write_text(text)
    tables.build(run)
    found: dict[str, int] = duck.run_checks(run, 5)["checks"]["G2"]["found"]
    return found


def test_aiokafka_begins_anew_and_g2_counts_it_where_it_was_answered_so(
    cluster: BackgroundCluster, tmp_path: Path
) -> None:
    fill(cluster, "refused-aiokafka", "refused-aiokafka")
    group, begun = refused_member(
        cluster, tmp_path / "members", "aiokafka", "refused-aiokafka", "refused-aiokafka"
    )
    if begun == COMMITTED:
        pytest.fail("aiokafka reads the error by now: docs/client-problems.md and G2 can forget it")
    assert begun == 0
    lines = [line for line in group.lines() if line["f"] not in ("assigned_all", "leaving")]
    told = [line for line in lines if line["f"] == "offset_fetch"]
    assert told[0]["error"] == "NOT_COORDINATOR"
    assert judged(tmp_path / "as-it-was", group, lines) == {"counted": 1}
    without = [line for line in lines if line["f"] != "offset_fetch"]
    assert judged(tmp_path / "without", group, without) == {"violation": 1}
    another = [{**line, "client": "kafka-python"} for line in lines]
    assert judged(tmp_path / "another", group, another) == {"violation": 1}


@pytest.mark.parametrize("client", ["kafka-python", "confluent-kafka"])
def test_other_clients_ask_the_new_coordinator(
    cluster: BackgroundCluster, tmp_path: Path, client: str
) -> None:
    name = f"refused-{client}"
    fill(cluster, name, name)
    group, begun = refused_member(cluster, tmp_path / "members", client, name, name)
    assert begun == COMMITTED
    lines = [line for line in group.lines() if line["f"] not in ("assigned_all", "leaving")]
    assert judged(tmp_path / "run", group, lines) == {}
