"""Serves each frame: a pure machine of connections and sessions, with the time as an argument.

Theory of operation.  Requests are carried out one by one as they come.  So each connection's
answers are in the order of its requests, and a watcher's notification of a change goes out before
the answer to the change.  The machine puts everything that a connection shall send into `out`; the
shell around it takes it from there, and decides what happens if a client does not read.

A session lives until it is closed, or has been silent for its time-out, which is counted from the
next tick of the clock on (`SessionTrackerImpl`).  A frame that is read later is too late, even if
it was in the socket's buffer while this process stood still.  In Java's server that is a race
between threads: in 53 of 55 pauses the session was over.  A connection that takes a session over
ends the former connection.  A client that has seen a later change than this server has made is
refused, because the server must have lost that change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from highwater.zookeeper import journal, jute
from highwater.zookeeper.acl import ADMIN, READ, Id, check, digest_of
from highwater.zookeeper.codes import Code, KeeperError
from highwater.zookeeper.ensemble import Ensemble, Made, Session
from highwater.zookeeper.jute import BadFrame, Reader, Type
from highwater.zookeeper.watches import Told, mode_of
from highwater.zookeeper.watches import Type as Kind

_CHANGES: Final = (
    Type.CREATE, Type.CREATE_2, Type.DELETE, Type.SET_DATA, Type.SET_ACL,
)  # fmt: skip
_NOT_HERE: Final = (Type.RECONFIG, Type.SASL, Type.CREATE_CONTAINER, Type.CREATE_TTL)
MOST_WATCHES: Final = 100_000
"""The most watches of one connection."""
NO_PASSWORD: Final = bytes(16)


@dataclass(slots=True, eq=False)
class Connection:
    host: str
    """The client's address, which is its id of the scheme `ip`."""
    session: Session | None = None
    ids: list[Id] = field(default_factory=list)
    out: list[bytes] = field(default_factory=list)
    closing: bool = False
    """Whether no more is read from it, and it ends once `out` is sent."""

    def __post_init__(self) -> None:
        self.ids.append(Id("ip", self.host))


class Service:
    def __init__(
        self,
        ensemble: Ensemble,
        *,
        tick_ms: int,
        password: Callable[[], bytes],
        first_session: int,
        wall_ms: Callable[[], int],
        note: Callable[[bytes], None] = lambda record: None,
    ) -> None:
        """`note` is called with each record for the journal, before the answer is in `out`."""
        self.ensemble = ensemble
        self._tick_ms = tick_ms
        self._password = password
        self._next_session = first_session
        self._wall_ms = wall_ms
        self._note = note
        self.told: set[Connection] = set()
        """Connections whose `out` or `closing` was changed by another one's request, or by time."""
        self._connections: dict[int, Connection] = {}
        """Session -> its present connection."""
        self._expires: dict[int, int] = {}
        """Session -> when it expires, in ms of the server's own clock."""

    # --- connections

    def begin(self, connection: Connection, frame: bytes, now_ms: int) -> None:
        """Takes a connection's first frame, which opens a session or resumes an earlier one."""
        self.expire(now_ms)
        try:
            asked = jute.read_connect(frame)
        except BadFrame:
            connection.closing = True
            return
        if asked.seen_zxid > self.ensemble.zxid:
            connection.closing = True
            return
        least, most = 2 * self._tick_ms, 20 * self._tick_ms
        timeout_ms = min(max(asked.timeout_ms, least), most)
        if asked.session_id:
            session = self._taken_over(asked, timeout_ms)
        else:
            self._next_session += 1
            session = self.ensemble.open_session(self._next_session, timeout_ms, self._password())
            self._note(journal.session_opened(self.ensemble, session, self._wall_ms()))
        if session is None:
            connection.out.append(jute.connected(asked, 0, 0, NO_PASSWORD))
            connection.closing = True
            return
        earlier = self._connections.get(session.id)
        if earlier is not None:
            self._close(earlier)
        connection.session = session
        session.ids = connection.ids
        self._connections[session.id] = connection
        self._touch(session, now_ms)
        connection.out.append(jute.connected(asked, timeout_ms, session.id, session.password))

    def _taken_over(self, asked: jute.Connect, timeout_ms: int) -> Session | None:
        session = self.ensemble.sessions.get(asked.session_id)
        if session is None or session.password != asked.password:
            return None
        session.timeout_ms = timeout_ms
        return session

    def lost(self, connection: Connection) -> None:
        """Notes that a connection has ended: its watches end with it, while its session lives on
        for the time-out."""
        self.ensemble.watches.end(connection)
        session = connection.session
        if session is not None and self._connections.get(session.id) is connection:
            del self._connections[session.id]

    def _close(self, connection: Connection) -> None:
        self.lost(connection)
        connection.closing = True
        self.told.add(connection)

    # --- time

    def resume(self, now_ms: int) -> None:
        """Gives the sessions of the server's earlier life their full time-outs."""
        for session in self.ensemble.sessions.values():
            self._touch(session, now_ms)

    def expiries(self) -> dict[int, int]:
        """Session -> when it ends if no request comes, in ms of the server's own clock."""
        return dict(self._expires)

    def _touch(self, session: Session, now_ms: int) -> None:
        tick = self._tick_ms
        self._expires[session.id] = ((now_ms + session.timeout_ms) // tick + 1) * tick

    def expire(self, now_ms: int) -> list[int]:
        """Ends the sessions whose time is over, and returns them."""
        late = [id_ for id_, at in self._expires.items() if at <= now_ms]
        for id_ in late:
            self._end(id_)
        return late

    def _end(self, id_: int) -> None:
        self._expires.pop(id_, None)
        connection = self._connections.get(id_)
        if connection is not None:
            self._close(connection)
        ms = self._wall_ms()
        _, told = self.ensemble.end_session(id_, ms)
        self._note(journal.session_ended(self.ensemble, id_, ms))
        self._tell(told)

    # --- requests

    def handle(self, connection: Connection, frame: bytes, now_ms: int) -> None:
        """Carries out one request of a session."""
        session = connection.session
        assert session is not None
        if session.id in self._expires:
            if self._expires[session.id] <= now_ms:
                self.expire(now_ms)
                return
            self._touch(session, now_ms)
        reader = Reader(frame)
        try:
            xid, kind = reader.int32(), reader.int32()
        except BadFrame:
            connection.closing = True
            return
        if kind == Type.CLOSE:
            self._end(session.id)
            connection.out.append(jute.reply(xid, self.ensemble.zxid))
            connection.closing = True
            return
        if kind == Type.AUTH:
            self._authenticate(connection, reader, xid)
            return
        body, code = b"", Code.OK
        try:
            body = self._answer(connection, session, kind, reader)
        except KeeperError as error:
            code = error.code
        except BadFrame:
            code = Code.MARSHALLING_ERROR
        connection.out.append(jute.reply(xid, self.ensemble.zxid, code, body))
        if code is Code.UNIMPLEMENTED and kind not in (*_NOT_HERE, *_CHANGES, Type.MULTI):
            connection.closing = True  # as UnimplementedRequestProcessor does

    def _authenticate(self, connection: Connection, reader: Reader, xid: int) -> None:
        try:
            reader.int32()
            scheme, credentials = reader.text(), reader.buffer().decode()
        except (BadFrame, UnicodeDecodeError):
            scheme, credentials = "", ""
        known = scheme == "digest"
        if known and (one := Id(scheme, digest_of(credentials))) not in connection.ids:
            connection.ids.append(one)
        known = known or scheme in ("ip", "world")
        code = Code.OK if known else Code.AUTH_FAILED
        connection.out.append(jute.reply(xid, 0, code))
        connection.closing = not known

    def _answer(self, connection: Connection, session: Session, kind: int, reader: Reader) -> bytes:
        zk, id_ = self.ensemble, session.id
        if kind in _CHANGES:
            op, ms = jute.read_op(kind, reader), self._wall_ms()
            try:
                made, told = zk.write(id_, op, ms)
            except KeeperError:
                self._note(journal.refused(zk))
                raise
            self._note(journal.changed(zk, id_, [op], [made], ms))
            self._tell(told)
            return jute.made(kind, made)
        match kind:
            case Type.PING:
                return b""
            case Type.MULTI:
                return self._multi(session, reader)
            case Type.MULTI_READ:
                return self._multi_read(session, reader)
            case Type.SYNC:
                return jute.text(reader.text())
            case Type.WHO_AM_I:
                return jute.clients(session.ids)
            case Type.GET_DATA:
                data, stat = zk.get(id_, reader.text(), self._watcher(connection, reader))
                return jute.buffer(data) + jute.stat(stat)
            case Type.EXISTS:
                path = reader.text()
                found = zk.exists(id_, path, self._watcher(connection, reader))
                if found is None:
                    raise KeeperError(Code.NO_NODE, path)
                return jute.stat(found)
            case Type.GET_CHILDREN | Type.GET_CHILDREN_2:
                names, stat = zk.children(id_, reader.text(), self._watcher(connection, reader))
                return jute.texts(names) + jute.stat(stat) * (kind == Type.GET_CHILDREN_2)
            case Type.GET_ACL:
                return self._acl(session, reader.text())
            case Type.GET_EPHEMERALS:
                prefix = reader.text()
                own = zk.tree.ephemerals.get(id_, ())
                return jute.texts(path for path in own if path.startswith(prefix))
            case Type.GET_ALL_CHILDREN_NUMBER:
                path = reader.text()
                check(zk.tree.node(path).acl, READ, session.ids, path)
                below = sum(other.startswith(f"{path.rstrip('/')}/") for other in zk.tree.nodes)
                return jute.number(below - (path == "/"))
            case Type.ADD_WATCH:
                path, mode = reader.text(), mode_of(reader.int32())
                self._bounded(connection)
                zk.watches.lasting(path, connection, mode)
                return jute.number(Code.OK)  # an ErrorResponse, without which Java's client ends
            case Type.CHECK_WATCHES | Type.REMOVE_WATCHES:
                self._unwatch(connection, reader, remove=kind == Type.REMOVE_WATCHES)
                return b""
            case Type.SET_WATCHES | Type.SET_WATCHES_2:
                self._restore(connection, reader, lasting=kind == Type.SET_WATCHES_2)
                return b""
        raise KeeperError(Code.UNIMPLEMENTED)

    def _acl(self, session: Session, path: str) -> bytes:
        """The answer to getACL; only clients that may change the list see the hashes of digests."""
        node, shown = self.ensemble.tree.node(path), True
        check(node.acl, READ | ADMIN, session.ids, path)
        try:
            check(node.acl, ADMIN, session.ids, path)
        except KeeperError:
            shown = False
        entries = [
            one if shown or one.scheme != "digest" else one._replace(id=f"{one.id.split(':')[0]}:x")
            for one in node.acl
        ]
        return jute.acls(entries) + jute.stat(node.stat())

    def _multi(self, session: Session, reader: Reader) -> bytes:
        ops, ms = jute.read_multi(reader), self._wall_ms()
        plain = [op for _, op in ops]
        results, told = self.ensemble.multi(session.id, plain, ms)
        made = [result for result in results if isinstance(result, Made)]
        if len(made) == len(plain):
            self._note(journal.changed(self.ensemble, session.id, plain, made, ms))
        else:
            self._note(journal.refused(self.ensemble))
        self._tell(told)
        return jute.multi(
            [
                (kind, result if isinstance(result, Code) else jute.made(kind, result))
                for (kind, _), result in zip(ops, results, strict=True)
            ]
        )

    def _multi_read(self, session: Session, reader: Reader) -> bytes:
        """The answer to multiRead, each read of which may fail by itself."""
        found: list[tuple[int, bytes | Code]] = []
        for kind, path in jute.read_multi_read(reader):
            try:
                if kind == Type.GET_DATA:
                    data, stat = self.ensemble.get(session.id, path)
                    found.append((kind, jute.buffer(data) + jute.stat(stat)))
                else:
                    names, _ = self.ensemble.children(session.id, path)
                    found.append((kind, jute.texts(names)))
            except KeeperError as error:
                found.append((kind, error.code))
        return jute.multi(found)

    # --- watches

    def _watcher(self, connection: Connection, reader: Reader) -> Connection | None:
        if not reader.flag():
            return None
        self._bounded(connection)
        return connection

    def _bounded(self, connection: Connection) -> None:
        if self.ensemble.watches.count(connection) >= MOST_WATCHES:
            raise KeeperError(Code.BAD_ARGUMENTS)

    def _unwatch(self, connection: Connection, reader: Reader, *, remove: bool) -> None:
        path, number = reader.text(), reader.int32()
        if number not in tuple(Kind):
            raise KeeperError(Code.MARSHALLING_ERROR, path)
        watches, kind = self.ensemble.watches, Kind(number)
        there = (watches.remove if remove else watches.has)(path, connection, kind)
        if not there:
            raise KeeperError(Code.NO_WATCHER, path)

    def _restore(self, connection: Connection, reader: Reader, *, lasting: bool) -> None:
        seen = reader.int64()
        paths = [reader.texts() for _ in range(5 if lasting else 3)]
        if self.ensemble.watches.count(connection) + sum(map(len, paths)) > MOST_WATCHES:
            raise KeeperError(Code.BAD_ARGUMENTS)
        self._tell(self.ensemble.watches.restore(connection, self.ensemble.tree, seen, *paths))

    def _tell(self, told: list[Told]) -> None:
        for watcher, event, path, acl in told:
            assert isinstance(watcher, Connection)
            try:
                check(acl, READ, watcher.ids, path)
            except KeeperError:
                continue
            watcher.out.append(jute.notification(event, path, self.ensemble.zxid))
            self.told.add(watcher)
