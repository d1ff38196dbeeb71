"""ZooKeeper goes away, for longer than a session, and comes back: with its data, or without."""

from __future__ import annotations

import shutil
import socket
import time
from collections.abc import Iterator
from itertools import pairwise

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from highwater.kafka.wire import messages
from tests.background import BackgroundCluster
from tests.integration.robustness.load import (
    PARTITIONS,
    TOPIC,
    Load,
    in_sync,
    leaders,
    lines,
    output,
    seen,
    state,
)
from tests.integration.robustness.rig import connect, frame_of, metadata, receive_all
from tests.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
SESSION_S = 3.0
"""zookeeper.session.timeout.ms of the profile `test`."""
AWAY = "WARNING ZooKeeper at"
THERE = "INFO ZooKeeper "
"""A session is new, at a broker's start or after one that expired; or it is resumed."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BackgroundCluster]:
    with BackgroundCluster(tmp_path_factory.mktemp("zookeeper-away")) as made:
        made.create_topic(TOPIC, PARTITIONS)
        yield made


def registered(cluster: BackgroundCluster) -> set[int]:
    """The brokers that ZooKeeper holds as ephemerals, asked directly."""
    host, port = cluster.cluster.zookeeper_connect.split(":")
    with socket.create_connection((host, int(port)), timeout=60) as sock:
        sock.sendall(b"dump")
        told = receive_all(sock).decode()
    return {n for n in cluster.cluster.brokers if f"/brokers/ids/{n}\n" in told + "\n"}


def over(cluster: BackgroundCluster, number: int) -> list[str]:
    """What a broker told of sessions that ended."""
    return lines(cluster, number, "has expired") + lines(cluster, number, "not be resumed")


def controller(cluster: BackgroundCluster) -> int:
    number = next(n for n in cluster.cluster.brokers if cluster.cluster.running(f"broker-{n}"))
    return int(metadata(cluster.cluster.address(number), []).controller_id)


def set_retention(cluster: BackgroundCluster, value: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    entry = ConfigEntry("retention.ms", value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(60)


def ask_for_producer_ids(cluster: BackgroundCluster) -> list[socket.socket]:
    """Sends more such requests to each broker than it has handlers."""
    request = messages.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    socks = [connect(cluster.cluster.address(n)) for n in cluster.cluster.brokers * 10]
    for sock in socks:
        sock.sendall(frame_of(request, 1))
    return socks


def test_away_for_longer_than_a_session(cluster: BackgroundCluster) -> None:
    """Brokers go on serving, and afterwards leaders can be elected again."""
    load = Load(cluster)
    load.until(lambda: len(load.acked) > 50, "it begins", lambda: state(cluster))
    cluster.kill("zookeeper")
    waiting = ask_for_producer_ids(cluster)  # which no client can get now, and which may wait
    away, before = time.monotonic(), len(load.acked)
    load.until(
        lambda: time.monotonic() > away + SESSION_S + 1 and len(load.acked) > before + 200,
        "it goes on without ZooKeeper",
        lambda: state(cluster),
    )
    cluster.start("zookeeper")
    for sock in waiting:
        sock.close()
    load.until(
        lambda: all(len(lines(cluster, n, THERE)) > 1 for n in (1, 2, 3)),
        "all have found it again",
        lambda: state(cluster),
    )
    # a broker that was slow to find it has a new session, and registers in it
    load.until(lambda: registered(cluster) == {1, 2, 3}, "registered", lambda: state(cluster))
    set_retention(cluster, "7654321")
    load.until(
        lambda: all(lines(cluster, n, "'retention.ms': '7654321'") for n in (1, 2, 3)),
        "all follow changes of configuration again",
        lambda: state(cluster),
    )
    dead = leaders(cluster)[0]
    cluster.kill(dead)
    load.until(lambda: dead not in leaders(cluster), "others lead", lambda: state(cluster))
    cluster.start(dead)
    load.until(lambda: in_sync(cluster), "all are in sync", lambda: state(cluster))
    load.finish()
    for number in {1, 2, 3} - {dead}:
        all_lines = output(cluster, number).splitlines()
        told = [AWAY in line for line in all_lines if AWAY in line or THERE in line]
        # one line when it goes, one when it is back; a ZooKeeper that is slow may go once more
        assert told[:3] == [False, True, False], output(cluster, number)
        assert all(now is not before for before, now in pairwise(told)), output(cluster, number)
    assert cluster.cluster.logged_exceptions() == []


def test_every_session_expires(cluster: BackgroundCluster) -> None:
    """No broker can reach ZooKeeper, which ends all sessions; the controller's broker dies
    meanwhile.  The others register again, elect a controller, and it elects leaders.
    """
    load = Load(cluster)
    load.until(lambda: len(load.acked) > 50, "it begins", lambda: state(cluster))
    sessions = {n: len(lines(cluster, n, "INFO ZooKeeper session 0x")) for n in (1, 2, 3)}
    over_before = {n: len(over(cluster, n)) for n in (1, 2, 3)}
    for number in cluster.cluster.brokers:
        cluster.cut(number, "zookeeper")
    eventually(lambda: not registered(cluster), "the sessions are over", lambda: state(cluster))
    before = len(load.acked)
    load.until(lambda: len(load.acked) > before + 50, "it goes on", lambda: state(cluster))
    dead = controller(cluster)
    others = {1, 2, 3} - {dead}
    cluster.kill(dead)
    cluster.heal()
    load.until(lambda: registered(cluster) == others, "registered", lambda: state(cluster))
    load.until(lambda: dead not in leaders(cluster), "others lead", lambda: state(cluster))
    eventually(lambda: controller(cluster) in others, "a controller", lambda: state(cluster))
    cluster.start(dead)
    load.until(lambda: in_sync(cluster), "all are in sync", lambda: state(cluster))
    load.finish()
    for number in others:
        assert len(over(cluster, number)) == over_before[number] + 1, output(cluster, number)
        assert len(lines(cluster, number, "INFO ZooKeeper session 0x")) == sessions[number] + 1
    assert cluster.cluster.logged_exceptions() == []


def test_its_data_is_lost(cluster: BackgroundCluster) -> None:
    """With an empty ZooKeeper every broker ends rather than found another cluster over its logs."""
    cluster.mend()
    load = Load(cluster)
    load.until(lambda: len(load.acked) > 50, "it begins", lambda: state(cluster))
    load.finish()
    cluster.kill("zookeeper")
    data, kept = cluster.folder / "zookeeper" / "data", cluster.folder / "zookeeper" / "kept"
    data.rename(kept)
    cluster.start("zookeeper")
    eventually(
        lambda: not any(cluster.cluster.running(f"broker-{n}") for n in (1, 2, 3)),
        "all have ended",
        lambda: state(cluster),
    )
    for number, end in enumerate(cluster.cluster.unexpected_ends(), 1):
        assert f"broker-{number} ended with code 1: broker {number} stops: this broker" in end
        assert "leads to no cluster: restore ZooKeeper's data" in end
    assert len(cluster.cluster.unexpected_ends()) == 3
    assert cluster.cluster.logged_exceptions() == []
    cluster.kill("zookeeper")
    shutil.rmtree(data)
    kept.rename(data)
    cluster.mend()
    eventually(lambda: in_sync(cluster), "all are in sync", lambda: state(cluster))
    assert len(seen(cluster)) == PARTITIONS
    load.finish()
