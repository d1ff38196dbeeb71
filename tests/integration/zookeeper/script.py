"""Requests of several sessions, made by a seed; and what a server answers to them."""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass
from typing import Any, NamedTuple

from highwater.zookeeper import jute
from highwater.zookeeper.acl import ALL, READ, Acl, digest_of
from highwater.zookeeper.jute import Type
from highwater.zookeeper.tree import NULL
from tests.integration.zookeeper.raw_client import Raw, create, multi, path_and
from tests.waiting import eventually

SESSIONS = 3
PATHS = (
    "/a", "/b", "/a/x", "/a/y", "/a/x/1", "/b/x", "/s", "/e", "/a/e", "/p", "/p/x", "/zookeeper",
    "/zookeeper/config", "/zookeeper/quota", "/", "/a/", "//", "a", "/a/../b", "/a/\x01", "",
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


def script(seed: int, count: int, expiries: int = 0) -> list[Step]:
    """`expiries` of the steps let a session expire, which takes a second."""
    rng = random.Random(seed)
    steps = [_step(rng) for _ in range(count)]
    for at in rng.sample(range(count), expiries):
        steps[at] = Step(rng.randrange(SESSIONS), "expire")
    return steps


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
    if chance < 0.01:
        return Step(session, rng.choice(("close", "login")))
    if chance < 0.025:
        # it is away until its next step, or not at all; and may watch again what it watched
        kind = rng.choice((0, Type.SET_WATCHES, Type.SET_WATCHES_2))
        lists = 5 if kind == Type.SET_WATCHES_2 else 3
        paths = [jute.texts(_path(rng) for _ in range(rng.randrange(4))) for _ in range(lists)]
        return Step(session, rng.choice(("leave", "reconnect")), kind, b"".join(paths))
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


class Taken(NamedTuple):
    answer: Any
    told: list[list[tuple[int, str]]]
    """Of each session."""
    back: Any
    """What came of the session's return, where it was away."""


class Run:
    """One server's side: each step gives its answer, and what each session was told by then."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self.sessions = [self._opened() for _ in range(SESSIONS)]
        self._away: dict[int, Step] = {}
        """How each of these sessions left."""

    def _opened(self) -> Raw:
        raw = Raw(self._address)
        assert raw.connect()
        return raw

    def take(self, step: Step) -> Taken:
        raw = self.sessions[step.session]
        answer: Any = None
        back = None
        if step.session in self._away:
            back = self._back(raw, self._away.pop(step.session))
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
            case "leave":
                raw.drop()
                self._away[step.session] = step
            case "reconnect":
                raw.drop()
                answer = self._back(raw, step)
            case "expire":
                answer = self._expired(step.session)
            case "login":
                body = jute.number(0) + jute.text("digest") + jute.buffer(b"alice:secret")
                answer = raw.ask(Type.AUTH, body, jute.AUTH_XID)
        told = [
            [] if number in self._away else self._notified(one)
            for number, one in enumerate(self.sessions)
        ]
        if step.does in ("close", "expire"):  # Java's ephemerals go in the order of a hash table
            told = [sorted(one) for one in told]
        return Taken(answer, told, back)

    @staticmethod
    def _back(raw: Raw, step: Step) -> Any:
        """What it watches then is told of what it has missed since the last answer."""
        lives = raw.connect(), raw.negotiated
        if step.kind == 0:
            return lives
        body = struct.pack(">q", raw.seen) + step.body
        return lives, raw.ask(step.kind, body, jute.SET_WATCHES_XID)

    def _expired(self, session: int) -> Any:
        """A session that is silent for its time-out, and cannot be had again; a new one for it.

        Nothing else is asked meanwhile, so that the next zxid is that of its end.
        """
        raw = self.sessions[session]
        raw.drop()
        raw.timeout_ms = 1
        lived = raw.connect(), raw.negotiated
        raw.drop()
        other = next(
            one
            for number, one in enumerate(self.sessions)
            if number != session and number not in self._away
        )
        other.ask(Type.PING, b"", jute.PING_XID)
        before = other.seen
        eventually(lambda: self._seen(other) > before, "it expires", within_s=10)
        lives = raw.connect()
        raw.drop()
        self.sessions[session] = self._opened()
        return lived, lives

    @staticmethod
    def _seen(raw: Raw) -> int:
        raw.ask(Type.PING, b"", jute.PING_XID)
        return raw.seen

    @staticmethod
    def _notified(raw: Raw) -> list[tuple[int, str]]:
        """A ping is answered after what was told before."""
        raw.ask(Type.PING, b"", jute.PING_XID)
        notified, raw.notified = raw.notified, []
        return notified

    def come_back(self) -> None:
        """Those that are away."""
        for number, step in self._away.items():
            self._back(self.sessions[number], step)
        self._away.clear()

    def end(self) -> None:
        for raw in self.sessions:
            raw.drop()
