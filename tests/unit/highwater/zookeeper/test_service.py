"""Frames that no client sends: each is answered or closes its connection, and nothing breaks."""

from __future__ import annotations

import struct

from hypothesis import given, settings
from hypothesis import strategies as st

from highwater.zookeeper import jute
from highwater.zookeeper.acl import OPEN
from highwater.zookeeper.ensemble import Ensemble
from highwater.zookeeper.jute import Type
from highwater.zookeeper.service import Connection, Service

HELLO = struct.pack(">iqiq", 0, 0, 6000, 0) + jute.buffer(bytes(16)) + b"\0"


def made() -> Service:
    return Service(
        Ensemble(), tick_ms=500, password=lambda: b"secret", first_session=7, wall_ms=lambda: 0
    )


def connected(service: Service, hello: bytes = HELLO, now_ms: int = 0) -> Connection:
    connection = Connection("127.0.0.1")
    service.begin(connection, hello, now_ms)
    return connection


def asked(service: Service, connection: Connection, kind: int, body: bytes, now_ms: int = 0) -> int:
    """The error code of the last answer."""
    service.handle(connection, struct.pack(">ii", 1, kind) + body, now_ms)
    code: int = struct.unpack_from(">iiqi", connection.out[-1])[3]
    return code


def parts() -> st.SearchStrategy[bytes]:
    numbers = st.integers(-3, 1 << 31 - 1).map(lambda n: struct.pack(">i", max(n, -(1 << 31))))
    return st.one_of(
        st.binary(max_size=9),
        st.text(max_size=9).map(jute.text),
        numbers,
        st.just(jute.acls(OPEN)),
        st.just(jute.text("/a")),
        st.sampled_from([b"\0", b"\1", struct.pack(">i?i", -1, True, -1)]),
        st.sampled_from(list(Type)).map(lambda kind: struct.pack(">i?i", kind, False, -1)),
    )


@settings(max_examples=600, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.one_of(st.sampled_from(list(Type)), st.integers(-200, 200)),
            st.lists(parts(), max_size=6),
        ),
        max_size=8,
    ),
    st.lists(parts(), max_size=4),
)
def test_whatever_comes_is_answered_or_ends_its_connection(
    requests: list[tuple[int, list[bytes]]], hello: list[bytes]
) -> None:
    service = made()
    strange = connected(service, b"".join(hello))
    assert strange.closing or strange.session is not None
    watcher, connection = connected(service), connected(service)
    assert asked(service, connection, Type.CREATE, jute.text("/a") + jute.buffer(b"")
                 + jute.acls(OPEN) + jute.number(0)) == 0  # fmt: skip
    asked(service, watcher, Type.ADD_WATCH, jute.text("/") + jute.number(1))
    for kind, body in requests:
        if connection.closing:
            connection = connected(service)
        before = len(connection.out)
        service.handle(connection, struct.pack(">ii", 1, kind) + b"".join(body), 0)
        assert len(connection.out) > before or connection.closing
    assert asked(service, watcher, Type.PING, b"") == 0


def test_a_session_is_taken_over_with_its_password_and_no_other() -> None:
    service = made()
    first = connected(service)
    assert first.session is not None
    id_ = first.session.id

    def again(password: bytes, seen: int = 0) -> Connection:
        hello = struct.pack(">iqiq", 0, seen, 6000, id_) + jute.buffer(password) + b"\0"
        return connected(service, hello)

    wrong = again(b"guessed")
    assert wrong.closing
    assert struct.unpack_from(">iii", wrong.out[0])[2] == 0, "a time-out of 0: it is over"
    assert not first.closing
    late = again(b"secret", service.ensemble.zxid + 1)
    assert (late.closing, late.out) == (True, [])
    second = again(b"secret")
    assert (second.closing, first.closing) == (False, True)
    assert service.told == {first}
    service.lost(first)
    assert asked(service, second, Type.PING, b"") == 0


def test_a_session_ends_when_it_was_silent_and_not_before() -> None:
    service = made()
    one, other = connected(service), connected(service)
    create = jute.text("/e") + jute.buffer(b"") + jute.acls(OPEN) + jute.number(1)
    assert asked(service, one, Type.CREATE, create) == 0
    asked(service, other, Type.EXISTS, jute.text("/e") + b"\1")
    assert service.expire(6000) == []
    asked(service, other, Type.PING, b"", 6000)
    told = len(other.out)
    assert service.expire(6499) == []
    assert service.expire(6500) == [8]
    assert one.closing
    assert len(other.out) == told + 1, "its watch"
    assert asked(service, other, Type.EXISTS, jute.text("/e") + b"\0", 6500) == -101
    assert service.expire(12_499) == []
    service.resume(100_000)
    assert service.expire(106_000) == []
    assert service.expire(106_500) == [9]


def test_what_is_read_after_a_session_s_time_comes_too_late() -> None:
    """It had lain in the socket's buffer, while the process stood still."""
    service = made()
    late, other = connected(service), connected(service)
    asked(service, other, Type.PING, b"", 6499)
    answered = len(late.out)
    service.handle(late, struct.pack(">ii", -2, Type.PING), 6500)
    assert late.closing
    assert len(late.out) == answered
    assert late.session is not None
    assert late.session.id not in service.ensemble.sessions
    assert not other.closing
    password = struct.pack(">iqiq", 0, 0, 6000, 8) + jute.buffer(b"secret") + b"\0"
    assert connected(service, password, 12_999).closing, "the one after a pause is late, too"
    assert asked(service, other, Type.PING, b"", 12_999) == 0


def test_who_comes_back_after_a_session_s_time_comes_too_late() -> None:
    service = made()
    connected(service)
    again = struct.pack(">iqiq", 0, 0, 6000, 8) + jute.buffer(b"secret") + b"\0"
    assert not connected(service, again, 6499).closing
    assert connected(service, again, 13_000).closing


def test_a_lasting_watch_is_answered_with_a_code() -> None:
    """Java's client reads an ErrorResponse, and closes the connection where there is none."""
    service = made()
    connection = connected(service)
    assert asked(service, connection, Type.ADD_WATCH, jute.text("/") + jute.number(0)) == 0
    assert connection.out[-1] == jute.reply(1, service.ensemble.zxid, 0, jute.number(0))


def test_the_root_by_its_empty_name_is_there_when_watches_are_set_again() -> None:
    """Java has it by both; a data watch of "" is what a chroot's root may become."""
    service = made()
    connection = connected(service)
    seen = struct.pack(">q", service.ensemble.zxid)
    before = len(connection.out)
    body = seen + jute.texts([""]) + jute.texts([]) + jute.texts([""])
    assert asked(service, connection, Type.SET_WATCHES, body) == 0
    assert len(connection.out) == before + 1, "it is told of nothing"
