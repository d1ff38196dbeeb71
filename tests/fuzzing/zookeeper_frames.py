"""Frames that no ZooKeeper client sends, against the machine that answers, and over a socket.

Each is answered, or closes its connection; the tree stays one; and the journal, replayed, gives
the very state that answered.
"""

from __future__ import annotations

import struct
from random import Random

import trio

from highwater.zookeeper import journal, jute
from highwater.zookeeper.acl import OPEN
from highwater.zookeeper.ensemble import Ensemble
from highwater.zookeeper.jute import Type
from highwater.zookeeper.service import Connection, Service
from highwater.zookeeper.sockets import Server
from highwater.zookeeper.tree import parent_of
from tests.fuzzing.zookeeper_files import told
from tests.integration.zookeeper.script import request

FRAMES = 100
"""Against one server."""
AT_ONCE = 50
_KINDS = (*Type, *range(-12, 25))
_NUMBERS = (0, 1, -1, 2, 3, 7, 0x7FFFFFFF, -0x80000000, 0x0FFFFFFF)


def hello(chance: Random, sessions: list[tuple[int, bytes]]) -> bytes:
    """A session's first frame; of one that exists, or of none."""
    id_, password = chance.choice([(0, bytes(16)), *sessions, (chance.getrandbits(63), b"")])
    seen = chance.choice((0, 0, 0, 1, 1 << 62, -1))
    head = struct.pack(">iqiq", 0, seen, chance.choice((0, 6000, -1, 1 << 30)), id_)
    return head + jute.buffer(password) + chance.choice((b"", b"\0", b"\1"))


def part(chance: Random) -> bytes:
    match chance.randrange(7):
        case 0:
            return chance.randbytes(chance.randrange(9))
        case 1:
            return struct.pack(">i", chance.choice(_NUMBERS))
        case 2:
            return jute.acls(OPEN)
        case 3:
            return jute.text(chance.choice(("/a", "/", "", "/a/b", "\ud7ff/", "/\0", "//", "/é")))
        case 4:
            return struct.pack(">i?i", chance.choice(_KINDS), chance.random() < 0.2, -1)
        case 5:
            return struct.pack(">q", chance.choice(_NUMBERS))
    return chance.choice((b"\0", b"\1"))


def frame(chance: Random) -> bytes:
    """A request that a client would send, damaged or not; or one of parts."""
    kind, body = request(chance)
    if chance.random() < 0.3:
        kind = chance.choice(_KINDS)
    if chance.random() < 0.3:
        body = b"".join(part(chance) for _ in range(chance.randrange(6)))
    made = bytearray(struct.pack(">ii", chance.choice((1, -1, -2, -4, -8)), kind) + body)
    for _ in range(chance.choice((0, 0, 1, 2))):
        at = chance.randrange(len(made) + 1)
        match chance.randrange(5):
            case 0 if at < len(made):
                made[at] ^= 1 << chance.randrange(8)
            case 1:
                del made[at:]
            case 2:
                made[at:at] = chance.randbytes(chance.randrange(1, 9))
            case 3:
                made[at : at + 4] = struct.pack(">i", chance.choice(_NUMBERS))
            case _:
                made[at:at] = made[at : at + 30]
    return bytes(made)


def check_frames(chance: Random) -> dict[str, int]:
    """One server, and some connections; gives what came of it."""
    zk, log = Ensemble(), list[bytes]()
    service = Service(
        zk, tick_ms=500, password=lambda: chance.randbytes(16), first_session=7,
        wall_ms=lambda: now, note=log.append,
    )  # fmt: skip
    connections: list[Connection] = []
    now = done = closed = 0
    while done < FRAMES:
        now += chance.choice((0, 1, 50, 4000))
        service.expire(now)
        connections = [one for one in connections if not one.closing]
        if len(connections) < 3:
            known = [(one.id, one.password) for one in zk.sessions.values()]
            connection = Connection("127.0.0.1")
            service.begin(connection, hello(chance, known), now)
            assert connection.closing or connection.session is not None
            assert len(connection.out) < 2
            connections.append(connection)
        live = [one for one in connections if not one.closing]
        if not live:
            continue
        connection = chance.choice(live)
        done += 1
        if _ends(service, connection, frame(chance), now):
            closed += 1
            service.lost(connection)
    check_tree(zk)
    rebuilt = Ensemble()
    for _, payload in journal.records(b"".join(log)):
        journal.replay(rebuilt, payload)
    for one in rebuilt.sessions.values():  # what is negotiated anew is not written down
        one.timeout_ms = zk.sessions[one.id].timeout_ms
    assert told(rebuilt) == told(zk)
    restored = journal.restored(b"".join(journal.snapshot(zk)))
    assert restored is not None
    assert told(restored) == told(zk)
    return {"frames": done, "ended connections": closed, "zxids": zk.zxid}


def _ends(service: Service, connection: Connection, frame: bytes, now: int) -> bool:
    """Whether the connection ends by this frame; else it was answered."""
    before = len(connection.out)
    service.handle(connection, frame, now)
    assert connection.closing or len(connection.out) > before, "it got no answer"
    return connection.closing


def check_tree(zk: Ensemble) -> None:
    """Parents and children know each other, and sessions their ephemerals."""
    for path, node in zk.tree.nodes.items():
        if path != "/":
            assert path.rpartition("/")[2] in zk.tree.nodes[parent_of(path)].children, path
        for name in node.children:
            assert f"{path.rstrip('/')}/{name}" in zk.tree.nodes, (path, name)
        if node.owner:
            assert path in zk.tree.ephemerals[node.owner]
            assert node.owner in zk.sessions
    owned = [path for paths in zk.tree.ephemerals.values() for path in paths]
    assert all(zk.tree.nodes[path].owner for path in owned)


async def attack(seeds: range) -> None:
    """Connections with junk, each with its seed; a client that behaves is served in between."""
    server = Server(500)
    async with trio.open_nursery() as nursery:
        port = await nursery.start(server.serve, 0)
        for first in range(seeds.start, seeds.stop, AT_ONCE):
            with trio.fail_after(60):
                async with trio.open_nursery() as attackers:
                    for seed in range(first, min(first + AT_ONCE, seeds.stop)):
                        attackers.start_soon(_one, port, Random(f"socket {seed}"))
            with trio.fail_after(10):
                await _served(port)
        check_tree(server.ensemble)
        nursery.cancel_scope.cancel()


async def _one(port: int, chance: Random) -> None:
    """It sends what it has in pieces, and leaves, or waits for what comes."""
    data = jute.frame(hello(chance, [])) if chance.random() < 0.8 else b""
    for _ in range(chance.randrange(10)):
        made = frame(chance)
        size = len(made) if chance.random() < 0.9 else chance.choice(_NUMBERS)
        data += struct.pack(">i", size) + made
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    async with stream:
        try:
            for at in range(0, len(data), 64):
                await stream.send_all(data[at : at + 64])
            if chance.random() < 0.5:
                await stream.send_eof()
                while await stream.receive_some(65536):
                    pass
        except trio.BrokenResourceError:
            pass


async def _served(port: int) -> None:
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        first = struct.pack(">iqiq", 0, 0, 6000, 0) + jute.buffer(bytes(16)) + b"\0"
        await stream.send_all(jute.frame(first) + jute.frame(struct.pack(">ii", -2, Type.PING)))
        got = b""
        while len(got) < 41 + 20:
            more = await stream.receive_some(4096)
            assert more, "a client that behaves was closed"
            got += more
