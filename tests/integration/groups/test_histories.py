"""Groups of up to twenty members that join, leave and crash while coordinators are killed.

Each kind of client has a group of its own.  Every member writes down its own history; the
coordinators' records of each generation are read from __consumer_offsets at the end.  G2, G3 and G4
must hold for all of it, and must have had something to examine.
"""

from __future__ import annotations

import json
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import TopicPartition as Place

from highwater.broker.coordinator.group.records import GroupRecord, decode
from highwater.chaos.workloads.group_run import JAVA, GroupRun, collect
from highwater.cluster.client_files import Way
from highwater.verdict import duck, tables
from tests.background import BackgroundCluster
from tests.integration.groups.test_groups import coordinator_of
from tests.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]
PARTITIONS = 20
WITHIN_S = 120
MEMBERS = {"kafka-python": 20, "aiokafka": 8, "confluent-kafka": 8, JAVA: 4}


@contextmanager
def producing(bootstrap: str, topic: str) -> Iterator[None]:
    """Some hundred records a second, all different."""
    stop = threading.Event()

    def produce() -> None:
        producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 5})
        number = 0
        while not stop.wait(0.02):
            for _ in range(5):
                producer.produce(topic, f"v{number}".encode(), partition=number % PARTITIONS)
                number += 1
            producer.poll(0)
        producer.flush(WITHIN_S)

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def wait_until(holds: Callable[[], object], what: str, group: GroupRun) -> None:
    def alive_and_holds() -> object:
        assert not group.dead(), group.dead()
        return holds()

    eventually(alive_and_holds, what, group.owners, WITHIN_S)


def settled(group: GroupRun) -> None:
    """Every partition has an owner that runs, and every member has some if there are enough for
    all."""
    wanted = min(len(group.members), PARTITIONS)

    def balanced() -> bool:
        owners = group.owners()
        return len(owners) == PARTITIONS and len(set(owners.values())) == wanted

    wait_until(balanced, f"{wanted} members share {PARTITIONS} partitions", group)


def progress(group: GroupRun) -> None:
    """Waits until commits succeed again."""
    since = time.monotonic_ns()

    def committed() -> bool:
        return any(
            line["f"] == "commit" and line["type"] == "ok" and line["t_ns"] > since
            for line in group.lines()
        )

    wait_until(committed, "a commit succeeds", group)


def stored_generations(bootstrap: str, group: str, topic: str) -> Iterator[dict[str, Any]]:
    """`assign` lines from the coordinators' records."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "witness",
                         "enable.partition.eof": True, "enable.auto.commit": False})  # fmt: skip
    name = "__consumer_offsets"
    count = len(consumer.list_topics(name, timeout=60).topics[name].partitions)
    consumer.assign([Place(name, n, 0) for n in range(count)])
    ended = 0
    while ended < count:
        message = consumer.poll(60)
        assert message is not None, f"{name} cannot be read to its end"
        if message.error() is not None:
            ended += 1
            continue
        record = decode(message.key(), message.value())
        if isinstance(record, GroupRecord) and record.group_id == group and record.value:
            for member in record.value.members:
                for partition in assigned_in(member.assignment, topic):
                    yield {
                        "process": "coordinator", "client": "highwater", "f": "assign",
                        "type": "ok", "t_ns": time.monotonic_ns(), "topic": topic,
                        "partition": partition, "group_id": group, "member": member.member_id,
                        "generation": record.value.generation,
                    }  # fmt: skip
    consumer.close()


def asked(bootstrap: str, group: str, topic: str) -> list[dict[str, Any]]:
    """The coordinator's answer about the group's offsets now, to a client that is no member."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    common = {"process": "stranger", "client": "confluent-kafka", "f": "committed",
              "topic": topic, "group_id": group}  # fmt: skip
    deadline = time.monotonic() + WITHIN_S
    lines: list[dict[str, Any]] = []
    while not lines:
        assert time.monotonic() < deadline, f"the offsets of {group} cannot be read"
        began = time.monotonic_ns()
        try:
            found = consumer.committed([Place(topic, n) for n in range(PARTITIONS)], timeout=10)
        except KafkaException:
            continue
        for place in found:
            op = began + place.partition
            one = {**common, "op": op, "partition": place.partition}
            lines.append({**one, "type": "invoke", "t_ns": began})
            offset = max(place.offset, -1)
            lines.append({**one, "type": "ok", "t_ns": time.monotonic_ns(), "offset": offset})
    consumer.close()
    return lines


def assigned_in(data: bytes, topic: str) -> list[int]:
    """Decodes the consumer protocol's assignment: version, and for each topic its partitions."""
    found: list[int] = []
    if not data:
        return found
    (topics,) = struct.unpack_from(">i", data, 2)
    at = 6
    for _ in range(topics):
        (length,) = struct.unpack_from(">h", data, at)
        name = data[at + 2 : at + 2 + length].decode()
        (count,) = struct.unpack_from(">i", data, at + 2 + length)
        at += 6 + length
        if name == topic:
            found += struct.unpack_from(f">{count}i", data, at)
        at += 4 * count
    return found


def judge(run: Path, lines: list[dict[str, Any]], groups: list[GroupRun]) -> dict[str, Any]:
    count = collect(run, groups)
    with (run / "history.jsonl").open("a", encoding="utf-8") as out:
        for number, line in enumerate(lines, count):
            out.write(json.dumps({"run": "groups", "seed": 0, "index": number, **line}) + "\n")
    tables.build(run)
    checks: dict[str, Any] = duck.run_checks(run, 5)["checks"]
    return {name: checks[name] for name in ("G2", "G3", "G4")}


@pytest.mark.parametrize(
    "client",
    [  # the others meet dying coordinators elsewhere: confluent-kafka in chaos runs, aiokafka in
        # test_refused_offset_fetch, Java in test_streams
        pytest.param(c, marks=() if c == "kafka-python" else pytest.mark.rare)
        for c in MEMBERS
    ],
)
def test_members_come_and_go_while_coordinators_die(
    cluster: BackgroundCluster, client: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if client == JAVA:
        request.getfixturevalue("apache_tool")
    most, topic, group_id = MEMBERS[client], f"turmoil-{client}", f"group-{client}"
    cluster.create_topic(topic, partitions=PARTITIONS)
    bootstrap = cluster.bootstrap_servers
    group = GroupRun(
        tmp_path / "members", Way(bootstrap=bootstrap), group_id, topic, client, session_ms=6000
    )
    few = max(1, most // 4)
    try:
        with producing(bootstrap, topic):
            first = group.join()
            settled(group)
            cluster.kill(killed := coordinator_of(cluster, group_id))
            numbers = [group.join() for _ in range(most - 1)]  # during the failover
            settled(group)
            lines = asked(bootstrap, group_id, topic)
            cluster.start(killed)
            for number in numbers[:few]:
                group.leave(number)
            settled(group)
            for number in numbers[few : 2 * few]:
                group.crash(number)
            cluster.kill(killed := coordinator_of(cluster, group_id))
            settled(group)
            lines += asked(bootstrap, group_id, topic)
            cluster.start(killed)
            group.crash(first)
            for _ in range(few):
                group.join()
            settled(group)
            progress(group)
            lines += asked(bootstrap, group_id, topic)
        lines += stored_generations(bootstrap, group_id, topic)
    finally:
        group.end()
    found = judge(tmp_path / "run", lines, [group])
    for name, check in found.items():
        # what G2 counts apart for aiokafka comes from its log: see docs/client-problems.md
        assert "violation" not in check["found"], (name, check)
        assert check["examined"] > PARTITIONS, (name, "saw next to nothing", check)
