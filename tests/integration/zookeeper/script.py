"""Requests of several sessions, made by a seed; and what a server answers to them."""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass
from typing import Any

from highwater.zookeeper import jute
from highwater.zookeeper.acl import ALL, READ, Acl, digest_of
from highwater.zookeeper.jute import Type
from highwater.zookeeper.tree import NULL
from tests.integration.zookeeper.raw_client import Raw, create, multi, path_and

SESSIONS = 3
PATHS = (
    "/a", "/b", "/a/x", "/a/y", "/a/x/1", "/b/x", "/s", "/e", "/a/e", "/p", "/p/x", "/zookeeper",
    "/", "/a/", "//", "a", "/a/../b", "/a/\x01", "",
)  # fmt: skip
_PLAIN = 11
_ALICE = f"alice:{digest_of('alice:secret').partition(':')[2]}"
_ACLS: tuple[list[Acl] | None, ...] = (
    *[None] * 8,
    [],
    [Acl(READ, "world", "anyone")],
    [Acl(ALL, "auth", "")],
    [Acl(ALL, "digest", _ALICE)],
    [Acl(ALL, "ip", "127.0.0.1/8"), Acl(READ, "digest", _ALICE)],
    [Acl(ALL, "world", "nobody")],
    [Acl(ALL, "ip", "nowhere")],
)


@dataclass(frozen=True, slots=True)
class Step:
    """A request of one session; or something that happens to it."""

    session: int
    does: str
    kind: int = 0
    body: bytes = b""

    def __str__(self) -> str:
        name = Type(self.kind).name if self.kind in tuple(Type) else self.kind
        return f"{self.session} {self.does} {name} {self.body!r}"


def script(seed: int, count: int) -> list[Step]:
    rng = random.Random(seed)
    return [_step(rng) for _ in range(count)]


def _path(rng: random.Random) -> str:
    return rng.choice(PATHS[:_PLAIN] if rng.random() < 0.95 else PATHS)


def _version(rng: random.Random) -> bytes:
    return jute.number(rng.choice((-1, -1, -1, 0, 1, 2, 9)))


def _change(rng: random.Random) -> tuple[int, bytes]:
    path, data = _path(rng), rng.choice((NULL, *(bytes(size) for size in range(4))))
    match rng.randrange(8):
        case 0 | 1 | 2:
            kind = rng.choice((Type.CREATE, Type.CREATE_2))
            return kind, create(path, data, rng.choice((0, 0, 0, 1, 2, 3)), rng.choice(_ACLS))
        case 3 | 4:
            return Type.DELETE, path_and(path, _version(rng))
        case 5 | 6:
            return Type.SET_DATA, path_and(path, jute.buffer(data), _version(rng))
    return Type.CHECK, path_and(path, _version(rng))


def _set_acl(rng: random.Random) -> tuple[int, bytes]:
    acl = rng.choice(_ACLS) or [Acl(ALL, "world", "anyone")]
    return Type.SET_ACL, path_and(_path(rng), jute.acls(acl), _version(rng))


def _read(rng: random.Random) -> tuple[int, bytes]:
    watch = rng.choice((b"\0", b"\1"))
    kind = rng.choice((Type.EXISTS, Type.GET_DATA, Type.GET_CHILDREN, Type.GET_CHILDREN_2))
    return kind, path_and(_path(rng), watch)


def _other(rng: random.Random) -> tuple[int, bytes]:
    path = _path(rng)
    match rng.randrange(9):
        case 0:
            return Type.SYNC, path_and(path)
        case 1:
            return Type.GET_EPHEMERALS, path_and(rng.choice(("", "/", "/a", "/e")))
        case 2:
            return Type.GET_ALL_CHILDREN_NUMBER, path_and(path)
        case 3:
            return Type.GET_ACL, path_and(path)
        case 4:
            return Type.ADD_WATCH, path_and(path, jute.number(rng.choice((0, 0, 1, 1, 2))))
        case 5:
            kind = rng.choice((Type.REMOVE_WATCHES, Type.CHECK_WATCHES))
            return kind, path_and(path, jute.number(rng.choice((1, 2, 3, 4, 5, 6))))
        case 6:
            return Type.WHO_AM_I, b""
        case 7:
            kinds = (Type.GET_DATA, Type.GET_CHILDREN)
            parts = [(rng.choice(kinds), path_and(_path(rng), b"\0")) for _ in range(3)]
            return Type.MULTI_READ, multi(parts)
    return _set_acl(rng)


def _step(rng: random.Random) -> Step:
    session, chance = rng.randrange(SESSIONS), rng.random()
    if chance < 0.02:
        return Step(session, rng.choice(("close", "reconnect", "reconnect", "login")))
    return Step(session, "ask", *request(rng))


def request(rng: random.Random) -> tuple[int, bytes]:
    """Its type and its body."""
    chance = rng.random()
    if chance < 0.44:
        kind, body = _change(rng)
        while kind == Type.CHECK:  # which is for multis alone
            kind, body = _change(rng)
        return kind, body
    if chance < 0.6:
        return Type.MULTI, multi([_change(rng) for _ in range(rng.randrange(1, 5))])
    return _read(rng) if chance < 0.85 else _other(rng)


class Run:
    """One server's side: each step gives its answer, and what each session was told by then."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self.sessions = [self._opened() for _ in range(SESSIONS)]

    def _opened(self) -> Raw:
        raw = Raw(self._address)
        assert raw.connect()
        return raw

    def take(self, step: Step) -> tuple[Any, list[list[tuple[int, str]]]]:
        raw = self.sessions[step.session]
        answer: Any = None
        match step.does:
            case "ask":
                answer = raw.ask(step.kind, step.body)
                if answer == (1, None):
                    raw.drop()
                    answer = ("closed", raw.connect())
            case "close":
                answer = raw.ask(Type.CLOSE)
                raw.drop()
                self.sessions[step.session] = self._opened()
            case "reconnect":
                raw.drop()
                answer = raw.connect(), raw.negotiated
            case "login":
                body = jute.number(0) + jute.text("digest") + jute.buffer(b"alice:secret")
                answer = raw.ask(Type.AUTH, body, jute.AUTH_XID)
        told = [self._notified(one) for one in self.sessions]
        # Java's ephemerals go in the order of a hash table
        return answer, [sorted(one) for one in told] if step.does == "close" else told

    @staticmethod
    def _notified(raw: Raw) -> list[tuple[int, str]]:
        """A ping is answered after what was told before."""
        raw.ask(Type.PING, b"", jute.PING_XID)
        notified, raw.notified = raw.notified, []
        return notified

    def set_watches(self, session: int, paths: list[str], seen: int) -> Any:
        body = struct.pack(">q", seen) + jute.texts(paths) * 3
        return self.sessions[session].ask(Type.SET_WATCHES, body, jute.SET_WATCHES_XID)

    def end(self) -> None:
        for raw in self.sessions:
            raw.drop()
