"""Each verb on real processes, judged by its effect on a client."""

from __future__ import annotations

import threading

import pytest
from confluent_kafka import Producer

from highwater.chaos.witnesses import disk_reader as disk
from highwater.cluster.links.link_rules import Action, Rule
from highwater.kafka.types import TopicPartition as Tp
from tests.background import BackgroundCluster
from tests.integration import reading
from tests.integration.robustness.rig import metadata
from tests.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


def produce(cluster: BackgroundCluster, topic: str, values: list[str], **more: object) -> list[str]:
    """Sends the values to partition 0 with acks=all; returns the acknowledged ones."""
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True, **more}
    )
    acked: list[str] = []

    def delivered(error: object, message: object) -> None:
        if error is None:
            acked.append(message.value().decode())  # type: ignore[attr-defined]

    for value in values:
        producer.produce(topic, value.encode(), partition=0, on_delivery=delivered)
    producer.flush(60)
    return acked


def read_all(cluster: BackgroundCluster, topic: str) -> list[str]:
    """All values of partition 0."""
    found = reading.read_all(cluster.bootstrap_servers, topic, 1)
    return [value.decode() for _, value in sorted(found.items())]


def values(n: int, prefix: str = "v") -> list[str]:
    return [f"{prefix}{i}" for i in range(n)]


def test_a_killed_leader_is_replaced_and_comes_back_on_its_port(
    background: BackgroundCluster,
) -> None:
    cluster = background
    cluster.create_topic("killed")
    assert produce(cluster, "killed", values(100)) == values(100)
    leader = cluster.leader_of("killed", 0)
    port = cluster.cluster.address(leader)
    cluster.kill(leader)
    eventually(lambda: cluster.leader_of("killed", 0) not in (leader, -1), "another leader")
    assert produce(cluster, "killed", values(10, "w")) == values(10, "w")
    cluster.start(leader)
    assert cluster.cluster.address(leader) == port
    eventually(lambda: len(cluster.isr_of("killed", 0)) == 3, "back in the ISR")
    assert read_all(cluster, "killed") == values(100) + values(10, "w")


def test_stop_is_clean_and_hands_leadership_over(background: BackgroundCluster) -> None:
    cluster = background
    cluster.create_topic("stopped")
    assert len(produce(cluster, "stopped", values(20))) == 20
    leader = cluster.leader_of("stopped", 0)
    assert cluster.stop(leader) == 0
    assert cluster.leader_of("stopped", 0) not in (leader, -1)
    assert read_all(cluster, "stopped") == values(20)


def test_a_topic_is_made_once_every_broker_knows_it(background: BackgroundCluster) -> None:
    """So the other brokers know the leaders, even if the controller is killed next."""
    cluster = background
    links = cluster.cluster.links
    assert links is not None
    unaware = next(n for n in cluster.cluster.brokers if n != cluster.controller())
    held = links.add(Rule(Action.HOLD, "UpdateMetadata", target=f"broker-{unaware}", limit=0))
    making = threading.Thread(target=cluster.create_topic, args=("known",))
    making.start()
    try:
        eventually(lambda: held.matched, "the news are held back")
        making.join(1)
        assert making.is_alive()
        assert cluster.leader_of("known", 0) > 0
        assert not metadata(cluster.cluster.address(unaware), ["known"]).topics[0].partitions
    finally:
        cluster.heal()
        making.join()
    assert metadata(cluster.cluster.address(unaware), ["known"]).topics[0].partitions


def test_a_paused_follower_leaves_the_isr_and_returns(background: BackgroundCluster) -> None:
    cluster = background
    cluster.create_topic("paused")
    follower = next(n for n in cluster.isr_of("paused", 0) if n != cluster.leader_of("paused", 0))
    cluster.pause(follower)
    assert cluster.cluster.paused(f"broker-{follower}")
    eventually(lambda: follower not in cluster.isr_of("paused", 0), "the ISR shrinks")
    assert len(produce(cluster, "paused", values(20))) == 20
    cluster.resume(follower)
    eventually(lambda: follower in cluster.isr_of("paused", 0), "the ISR expands")


def test_a_cut_between_two_brokers_leaves_clients_alone(
    background: BackgroundCluster,
) -> None:
    cluster = background
    cluster.create_topic("cut")
    leader = cluster.leader_of("cut", 0)
    follower = next(n for n in cluster.isr_of("cut", 0) if n != leader)
    cluster.cut(leader, follower)
    # acks=all waits for the ISR, which shrinks only because a follower lacks a record
    assert len(produce(cluster, "cut", values(20))) == 20
    eventually(lambda: follower not in cluster.isr_of("cut", 0), "the ISR shrinks")
    assert read_all(cluster, "cut") == values(20)
    cluster.heal()
    eventually(lambda: follower in cluster.isr_of("cut", 0), "the ISR expands")


def test_the_isr_is_known_though_the_leader_is_cut_off_from_the_controller(
    background: BackgroundCluster,
) -> None:
    cluster = background
    first = next(iter(cluster.cluster.brokers))  # the first broker that the client asks
    if cluster.controller() == first:
        cluster.restart(first)
        eventually(lambda: cluster.controller() not in (first, -1), "another controller")
    controller = cluster.controller()
    names = (f"cut-off-{n}" for n in range(30))
    for topic in names:
        cluster.create_topic(topic)
        if cluster.leader_of(topic, 0) == first:
            break
    else:
        raise AssertionError(f"broker {first} leads none of 30 topics")
    cluster.cut(first, controller)
    assert len(produce(cluster, topic, values(20))) == 20
    eventually(lambda: controller not in cluster.isr_of(topic, 0), "the ISR shrinks")
    cluster.heal()
    eventually(lambda: controller in cluster.isr_of(topic, 0), "the ISR expands")
    assert read_all(cluster, topic) == values(20)


def test_kill_of_the_whole_cluster_loses_nothing(background: BackgroundCluster) -> None:
    cluster = background
    cluster.create_topic("everything")
    acked: list[str] = []
    for turn in range(3):
        acked += produce(cluster, "everything", values(200, f"turn{turn}-"))
        for number in cluster.cluster.brokers:
            cluster.kill(number)
        cluster.mend()
        eventually(lambda: cluster.leader_of("everything", 0) >= 0, "a leader")
    assert len(acked) == 600
    assert read_all(cluster, "everything") == acked


def test_segments_and_epochs_are_read_from_a_brokers_disk(
    background: BackgroundCluster,
) -> None:
    cluster = background
    cluster.create_topic("disk")
    assert len(produce(cluster, "disk", values(50))) == 50
    leader = cluster.leader_of("disk", 0)
    folder = disk.find_partition(cluster.cluster.data_dirs(leader), Tp("disk", 0))
    assert folder is not None
    assert [r.value for r in disk.stored_records(folder)] == values(50)
    assert disk.log_end_offset(folder) == 50
    assert disk.epoch_entries(folder)[0] == (0, 0)
