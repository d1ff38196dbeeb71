"""ZooKeeper ends the session of a live broker, by its id, as it does after a long pause.

The id is a controller's or another broker's.  A client that knows a session's id and password may
resume it, and close it: to its owner that is the same as an expiry.  The process goes on, registers
again under a new session, and serves again; nothing that was acknowledged is lost.
"""

from __future__ import annotations

import json
import re
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.protocol.serialization import Close, Connect

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
    client.start(60)
    yield client
    client.stop()
    client.close()


def sessions(cluster: Mixed, number: int) -> list[str]:
    """The ids of its sessions so far, from its log."""
    output = cluster.cluster.output(f"broker-{number}").read_text(errors="replace")
    return re.findall(r"INFO ZooKeeper session 0x([0-9a-f]+)", output)


def password_of(session_id: int) -> bytes:
    """The password as ZooKeeper makes it: 16 bytes of java.util.Random, seeded by the id and a
    constant."""
    multiplier, mask = 0x5DEECE66D, (1 << 48) - 1
    seed = (session_id ^ 0xB3415C00 ^ multiplier) & mask
    out = b""
    while len(out) < 16:
        seed = (seed * multiplier + 0xB) & mask
        out += (seed >> 16).to_bytes(4, "little")
    return out


def resume_and_close(address: tuple[str, int], session_id: int) -> int:
    """Both requests in one write: the owner, which loses its connection by the first, comes back
    at once, and ends this one in its turn.  Returns the id that ZooKeeper answered, 0 where there
    is no such session, or none of that password.

    :raises OSError: the owner was back before ZooKeeper had answered
    """
    resume = Connect(0, 0, 10_000, session_id, password_of(session_id), False).serialize()
    close = struct.pack(">ii", 1, Close.type)
    with socket.create_connection(address, timeout=60) as connection:
        connection.sendall(b"".join(struct.pack(">i", len(f)) + f for f in (resume, close)))
        reader = connection.makefile("rb")
        size = reader.read(4)
        if len(size) < 4:
            raise ConnectionError("closed before the answer")
        answer, _ = Connect.deserialize(reader.read(struct.unpack(">i", size)[0]), 0)
        reader.read()  # to its end: ZooKeeper closes the connection of a session that is closed
        return int(answer.session_id)


def expire(cluster: Mixed, zk: KazooClient, number: int, session_id: int) -> None:
    """Resumes the session of a broker, and closes it."""
    host, port = cluster.cluster.zookeeper_connect.split("/")[0].rsplit(":", 1)

    def ended() -> bool:
        try:
            answered = resume_and_close((host, int(port)), session_id)
        except OSError:
            return False
        assert answered in (session_id, 0)
        registered = zk.exists(f"/brokers/ids/{number}")
        return registered is None or registered.ephemeralOwner != session_id

    eventually(ended, "its session was closed; a wrong password?")


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

    expire(cluster, zk, number, registered.ephemeralOwner)

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
