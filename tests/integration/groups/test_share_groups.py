"""Share groups (KIP-932) with Apache Kafka's client: records are delivered, acknowledged, released,
renewed, and not lost when leaders die.

Nothing here waits for a fixed time: each step is repeated until it holds, or the test fails.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Producer

from tests import waiting
from tests.background import BackgroundCluster
from tests.integration.share_member import Member

pytestmark = [pytest.mark.integration, pytest.mark.apache, pytest.mark.timeout(300)]
TOPIC, STATE = "jobs", "__share_group_state"
LOCK_S, WITHIN_S = 8, 90
eventually = partial(waiting.eventually, within_s=WITHIN_S)


@pytest.fixture(scope="module")
def shared(
    tmp_path_factory: pytest.TempPathFactory, apache_tool: Callable[..., Any]
) -> Iterator[BackgroundCluster]:
    with BackgroundCluster(
        tmp_path_factory.mktemp("share"),
        offsets_topic_num_partitions="1",
        share_coordinator_state_topic_num_partitions="1",
        group_share_min_heartbeat_interval_ms="200",
        group_share_heartbeat_interval_ms="200",
        group_share_min_record_lock_duration_ms="1000",
        group_share_record_lock_duration_ms=str(LOCK_S * 1000),
    ) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared: BackgroundCluster) -> Iterator[BackgroundCluster]:
    yield shared
    shared.mend()


@contextmanager
def members(cluster: BackgroundCluster, topic: str, **modes: str) -> Iterator[list[Member]]:
    """Members by name, with their modes; all of them are ready."""
    started = [
        Member(cluster.folder, cluster.bootstrap_servers, topic, name, mode)
        for name, mode in modes.items()
    ]
    try:
        eventually(lambda: all(m.is_ready() for m in started), "members are ready", state(started))
        yield started
    finally:
        for member in started:
            member.kill()


def state(found: list[Member]) -> Callable[[], str]:
    def show() -> str:
        return "\n".join(
            f"{Counter(e['event'] for e in m.events)} {m.events[-3:]}\n{m.log.read_text()[-1500:]}"
            for m in found
        )

    return show


def send(cluster: BackgroundCluster, topic: str, values: range, partitions: int = 2) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 5})
    for value in values:
        producer.produce(topic, value=str(value).encode(), partition=value % partitions)
    assert producer.flush(60) == 0


def told(found: list[Member], *kinds: str) -> list[dict[str, Any]]:
    return [event for member in found for event in member.of(*kinds)]


def goes_on(found: list[Member], when: str) -> None:
    """Waits until a hundred more records are accepted."""
    wanted = len(told(found, "accept")) + 100
    eventually(lambda: len(told(found, "accept")) > wanted, f"accepted {when}", state(found))


def values(events: list[dict[str, Any]]) -> list[int]:
    return sorted(int(event["value"]) for event in events)


def counts(events: list[dict[str, Any]]) -> set[int]:
    return {event["count"] for event in events}


def test_each_record_goes_to_one_member(cluster: BackgroundCluster) -> None:
    cluster.create_topic("shared", partitions=2)
    with members(cluster, "shared", a="accept", b="accept") as both:
        for start in range(0, 200, 10):
            send(cluster, "shared", range(start, start + 10))
        eventually(lambda: len(told(both, "accept")) >= 200, "all accepted", state(both))
        assert values(told(both, "got")) == values(told(both, "accept")) == list(range(200))
        assert counts(told(both, "got")) == {1}
        for member in both:
            member.close()
    with members(cluster, "shared", c="accept") as (c,):
        send(cluster, "shared", range(200, 202))
        eventually(lambda: len(c.of("accept")) == 2, "only what is new", state([c]))
        assert values(c.of("got")) == [200, 201]


def test_released_records_come_again(cluster: BackgroundCluster) -> None:
    cluster.create_topic("released", partitions=2)
    send(cluster, "released", range(40))
    with members(cluster, "released", a="release-first", b="release-first") as both:
        eventually(lambda: len(told(both, "accept")) >= 40, "all accepted", state(both))
        assert values(told(both, "release")) == values(told(both, "accept")) == list(range(40))
        assert counts(told(both, "release")) == {1}
        assert counts(told(both, "accept")) == {2}


def test_a_lock_ends_and_another_member_gets_the_records(cluster: BackgroundCluster) -> None:
    cluster.create_topic("locked", partitions=1)
    send(cluster, "locked", range(20), partitions=1)
    with members(cluster, "locked", a="hold") as (a,):
        eventually(lambda: len(a.of("got")) == 20, "it holds all", state([a]))
        began = time.monotonic()
        with members(cluster, "locked", b="hold") as (b,):
            eventually(lambda: len(b.of("got")) == 20, "the other gets them", state([a, b]))
            assert time.monotonic() - began > LOCK_S / 2
            assert counts(b.of("got")) == {2}
            a.becomes("accept")
            eventually(lambda: len(a.of("failed")) == 20, "too late", state([a, b]))
            b.becomes("accept")
            eventually(lambda: len(b.of("accept")) == 20, "the other accepts", state([a, b]))
            assert a.of("accept") == []


def test_locks_are_renewed(cluster: BackgroundCluster) -> None:
    cluster.create_topic("renewed", partitions=1)
    send(cluster, "renewed", range(20), partitions=1)
    with members(cluster, "renewed", a="renew") as (a,):
        eventually(lambda: len(a.of("renew")) >= 20, "it renews all", state([a]))
        began = time.monotonic()
        with members(cluster, "renewed", b="accept") as (b,):
            late = began + 1.5 * LOCK_S
            eventually(lambda: time.monotonic() > late, "longer than a lock", state([a, b]))
            assert b.of("got") == []
            a.becomes("accept")
            eventually(lambda: len(a.of("accept")) >= 20, "it accepts all", state([a, b]))
        assert a.of("failed") == []


def test_a_member_goes_and_its_records_go_to_another(cluster: BackgroundCluster) -> None:
    cluster.create_topic("left", partitions=1)
    send(cluster, "left", range(20), partitions=1)
    with members(cluster, "left", a="hold") as (a,):
        eventually(lambda: len(a.of("got")) == 20, "it holds all", state([a]))
        began = time.monotonic()
        a.kill()
        with members(cluster, "left", b="accept") as (b,):
            eventually(lambda: len(b.of("accept")) >= 20, "the other accepts", state([b]))
            assert counts(b.of("got")) == {2}
        assert time.monotonic() - began < 60


@pytest.mark.slow
def test_leaders_die_and_nothing_acknowledged_comes_back(cluster: BackgroundCluster) -> None:
    """The leader of a partition, then the share coordinator, under load."""
    cluster.create_topic(TOPIC, partitions=2)
    stop, sent = threading.Event(), []

    def produce() -> None:
        producer = Producer(
            {"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True}
        )
        number = 0
        while not stop.is_set():
            for _ in range(10):
                producer.produce(
                    TOPIC, value=str(number).encode(), partition=number % 2,
                    on_delivery=lambda e, m: None if e else sent.append(int(m.value())),
                )  # fmt: skip
                number += 1
            producer.poll(0)
            time.sleep(0.05)
        assert producer.flush(60) == 0

    with members(cluster, TOPIC, a="accept", b="accept", c="release-first") as three:
        writer = threading.Thread(target=produce)
        writer.start()
        try:
            for topic in (TOPIC, STATE, TOPIC, STATE):
                goes_on(three, "before a death")
                leader = cluster.leader_of(topic, 0)
                cluster.kill(leader)
                goes_on(three, f"without broker {leader}, the leader of {topic}")
                cluster.start(leader)
        finally:
            stop.set()
            writer.join()
        eventually(lambda: undone(three, sent) == set(), "all accepted", state(three))
        accepted = Counter((e["partition"], e["offset"]) for e in told(three, "accept"))
        assert [place for place, times in accepted.items() if times > 1] == []


def undone(found: list[Member], sent: list[int]) -> set[int]:
    """The values that nobody has accepted; where the answer was lost, the acceptance may count."""
    unknown = [e for e in told(found, "failed") if e["type"] == "accept"]
    return set(sent) - set(values(told(found, "accept"))) - set(values(unknown))
