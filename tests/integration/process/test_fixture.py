"""A background cluster's answers: it refuses misspelled names, and the first group can come after
the first fault."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from highwater.child_processes import StartError
from highwater.cluster import internal_topics
from highwater.cluster.interface import ClusterError
from highwater.verdict.history import LineLog, read_lines
from tests.background import BackgroundCluster
from tests.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[BackgroundCluster]:
    with BackgroundCluster(tmp_path / "cluster") as cluster:
        yield cluster


def test_the_first_group_comes_after_the_leaders_death(fresh: BackgroundCluster) -> None:
    """The natural failover test: no client has asked for a coordinator before the kill."""
    fresh.create_topic("orders")
    producer = Producer({"bootstrap.servers": fresh.bootstrap_servers})
    producer.produce("orders", b"one")
    producer.flush(60)
    fresh.kill(fresh.leader_of("orders", 0))
    consumer = Consumer(
        {
            "bootstrap.servers": fresh.bootstrap_servers,
            "group.id": "first",
            "auto.offset.reset": "earliest",
        }
    )
    try:
        consumer.subscribe(["orders"])
        values: list[bytes] = []

        def read() -> bool:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                values.append(message.value())
            return bool(values)

        eventually(read, "the group reads the record", within_s=60)
        (committed,) = consumer.commit(asynchronous=False)
        assert (values, committed.offset, committed.error) == ([b"one"], 1, None)
    finally:
        consumer.close()


def test_both_internal_topics_are_there_on_as_many_brokers_as_there_are(tmp_path: Path) -> None:
    with BackgroundCluster(tmp_path / "cluster", brokers=2) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        topics = admin.list_topics(timeout=60).topics
        for name in ("__consumer_offsets", "__transaction_state"):
            assert {len(p.replicas) for p in topics[name].partitions.values()} == {2}
        cluster.create_topic("orders")
        assert len(cluster.isr_of("orders", 0)) == 2


def test_internal_topics_are_there_only_when_each_broker_names_their_coordinators(
    fresh: BackgroundCluster,
) -> None:
    """The broker that makes them hears of them first; a client may begin at another one."""
    last = max(fresh.cluster.brokers)
    fresh.pause(last)
    with pytest.raises(StartError, match=f"broker {last} does not name a coordinator"):
        trio.run(internal_topics.create, fresh.cluster, 3.0)
    fresh.resume(last)
    trio.run(internal_topics.create, fresh.cluster, 60.0)


def test_more_replicas_than_brokers_are_refused_before_anything_starts(tmp_path: Path) -> None:
    wanted = {"offsets_topic_replication_factor": "3"}
    with (
        pytest.raises(StartError, match=r"offsets\.topic\.replication\.factor=3, and there are to"),
        BackgroundCluster(tmp_path / "cluster", brokers=2, **wanted),
    ):
        pass
    assert not (tmp_path / "cluster" / "zookeeper").exists()


Ask = Callable[[BackgroundCluster], object]
MEMBERS = "no member 'brokr-2': there are zookeeper, broker-1, broker-2, broker-3"


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda c: c.cut("brokr-2", 1), f"{MEMBERS}, clients"),
        (lambda c: c.cut(1, 7), "no member 'broker-7'"),
        (lambda c: c.cut(1, 1), "both are broker-1"),
        (lambda c: c.kill("brokr-2"), MEMBERS),
        (lambda c: c.stop("brokr-2"), MEMBERS),
        (lambda c: c.start("brokr-2"), MEMBERS),
        (lambda c: c.start(7), "no member 'broker-7'"),
        (lambda c: c.start(1), "broker-1 runs already"),
        (lambda c: c.pause("brokr-2"), MEMBERS),
        (lambda c: c.resume("brokr-2"), MEMBERS),
        (lambda c: c.resume(1), "broker-1 is not paused; what is: nothing"),
        (lambda c: c.kill("clients"), "no member 'clients'"),
        (lambda c: c.create_topic("far", replication_factor=4), "INVALID_REPLICATION_FACTOR"),
        (lambda c: c.create_topic("no/name"), "INVALID_TOPIC_EXCEPTION"),
        (lambda c: c.create_topic("none", partitions=0), "INVALID_PARTITIONS"),
    ],
)
def test_what_cannot_be_is_one_line_at_once(
    background: BackgroundCluster, ask: Ask, said: str
) -> None:
    began = time.monotonic()
    with pytest.raises(ClusterError) as error:
        ask(background)
    assert said in str(error.value)
    assert "\n" not in str(error.value)
    assert time.monotonic() - began < 30, "it was asked again, though no retry mends it"


@pytest.mark.parametrize("verb", ["kill", "stop", "pause", "resume"])
def test_who_is_dead_is_not_taken_away_again(background: BackgroundCluster, verb: str) -> None:
    background.kill(2)
    with pytest.raises(ClusterError) as error:
        getattr(background, verb)(2)
    assert str(error.value) == "broker-2 does not run; what runs is zookeeper, broker-1, broker-3"


def test_a_topic_that_exists_otherwise_is_refused(background: BackgroundCluster) -> None:
    background.create_topic("three", partitions=3)
    background.create_topic("three", partitions=3)
    with pytest.raises(ClusterError, match="three exists with 3 partitions"):
        background.create_topic("three", partitions=2)


def test_a_topic_is_made_again_at_once(background: BackgroundCluster) -> None:
    """Its znode outlives the deletion's answer by a moment."""
    for partitions in (3, 6, 2, 9, 1):
        background.create_topic("again", partitions=partitions)
        background.delete_topic("again")


def test_when_a_process_was_down_or_stood_still_is_written_down(
    background: BackgroundCluster, tmp_path: Path
) -> None:
    """A report draws these times, exact to the moment, beside the registration."""
    cluster = background
    lives = cluster.cluster.lives
    log = LineLog(tmp_path / "processes.jsonl")
    lives.write_to(log)
    did: list[tuple[str, int, int]] = []

    def do(state: str, verb: Callable[[int], object]) -> None:
        began = time.monotonic_ns()
        verb(2)
        did.append((state, began, time.monotonic_ns()))

    do("paused", cluster.pause)
    do("up", cluster.resume)
    do("down", cluster.kill)
    do("up", cluster.start)
    do("down", cluster.stop)
    do("up", cluster.start)
    pid = cluster.cluster.pid("broker-2")
    do("down", lambda number: _end_by_itself(cluster, pid))
    lives.write_to(None)
    log.close()
    lines = [x for x in read_lines(tmp_path / "processes.jsonl") if x["member"] == "broker-2"]
    assert [line["state"] for line in lines] == ["up", *(state for state, _, _ in did)]
    for line, (_, began, ended) in zip(lines[1:], did, strict=True):
        assert began <= line["t_ns"] <= ended


def _end_by_itself(cluster: BackgroundCluster, pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: not cluster.cluster.running("broker-2"), "it has ended")
    cluster.cluster.lives.look(cluster.cluster.running)
