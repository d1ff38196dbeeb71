"""ZooKeeper ends the session of a live broker, by its id, as it does after a long pause.

The id is a controller's or another broker's.  Whoever knows a session's id and password may resume
it, and close it: to its owner that is what an expiry is.  The process goes on, registers anew under
a new session, and serves again; nothing that was acknowledged is lost.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from tests.integration.oracle.load import Load, lost
from tests.integration.oracle.rig import HIGHWATER, PARTITIONS, Mixed, create, eventually
from tests.integration.reading import read_all

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]
TOPIC = "expiry"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mixed]:
    folder: Path = tmp_path_factory.mktemp("expiry") / "cluster"
    made = Mixed(folder, dict.fromkeys((1, 2, 3), HIGHWATER))
    with made.background:
        create(made, TOPIC)
        yield made


@pytest.fixture
def zk(cluster: Mixed) -> Iterator[KazooClient]:
    client = KazooClient(cluster.cluster.zookeeper_connect)
    client.start(10)
    yield client
    client.stop()
    client.close()


def sessions(cluster: Mixed, number: int) -> list[str]:
    """The ids of its sessions so far, as it has logged them."""
    output = cluster.cluster.output(f"broker-{number}").read_text(errors="replace")
    return re.findall(r"INFO ZooKeeper session 0x([0-9a-f]+)", output)


def password_of(session_id: int) -> bytes:
    """As ZooKeeper makes it: 16 bytes of java.util.Random, seeded by the id and a constant."""
    multiplier, mask = 0x5DEECE66D, (1 << 48) - 1
    seed = (session_id ^ 0xB3415C00 ^ multiplier) & mask
    out = b""
    while len(out) < 16:
        seed = (seed * multiplier + 0xB) & mask
        out += (seed >> 16).to_bytes(4, "little")
    return out


def expire(cluster: Mixed, session_id: int) -> None:
    """Resumes the session of another process, and closes it."""
    thief = KazooClient(
        cluster.cluster.zookeeper_connect, client_id=(session_id, password_of(session_id))
    )
    thief.start(10)
    assert thief.client_id[0] == session_id, "ZooKeeper gave it another session: a wrong password?"
    thief.stop()
    thief.close()


@pytest.mark.parametrize("victim", ["a broker", "the controller"])
def test_a_live_broker_outlives_its_session(cluster: Mixed, zk: KazooClient, victim: str) -> None:
    eventually(lambda: cluster.whole(TOPIC), "all are in sync", lambda: cluster.state(TOPIC))
    load = Load(cluster.bootstrap, TOPIC, PARTITIONS)
    load.more()
    controller = cluster.controller()
    number = controller if victim == "the controller" else controller % 3 + 1
    for partition in range(PARTITIONS):  # of its partitions some, and not all
        cluster.move_leader(TOPIC, partition, 1 + partition % 3)
    load.more()
    process = cluster.cluster.pid(f"broker-{number}")
    before = sessions(cluster, number)
    epoch = int(zk.get("/controller_epoch")[0])
    registered = zk.get(f"/brokers/ids/{number}")[1]
    assert f"{registered.ephemeralOwner:x}" == before[-1]

    expire(cluster, registered.ephemeralOwner)

    def registered_anew() -> bool:
        stat = zk.exists(f"/brokers/ids/{number}")
        return stat is not None and stat.czxid > registered.czxid

    eventually(registered_anew, "registered anew", lambda: cluster.state(TOPIC))
    load.more()
    eventually(lambda: cluster.whole(TOPIC), "all are in sync", lambda: cluster.state(TOPIC))
    assert len(sessions(cluster, number)) == len(before) + 1
    assert cluster.cluster.pid(f"broker-{number}") == process, "it was not started again"
    assert cluster.cluster.unexpected_ends() == []
    if victim == "the controller":
        assert int(zk.get("/controller_epoch")[0]) == epoch + 1
    now = json.loads(zk.get("/controller")[0])["brokerid"]
    eventually(lambda: cluster.controller() == now, "all know it", lambda: cluster.state(TOPIC))
    for partition in range(PARTITIONS):  # it leads again
        cluster.move_leader(TOPIC, partition, number)
    load.more()
    load.finish()
    assert lost(load, read_all(cluster.bootstrap, TOPIC, PARTITIONS)) == []
    assert cluster.cluster.logged_exceptions() == []
