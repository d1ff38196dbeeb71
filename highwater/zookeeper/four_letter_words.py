"""The four-letter words: commands for people and for monitoring, each answered by a text.

Pure: each gets a `View` of the server.  Words that only Java's server has (gtmk, stmk, hash) end
their connection without an answer, as does an unknown word.  A latency is the time from the reading
of a frame to the moment when its answer may be sent.

Source: FourLetterCommands and the commands of org.apache.zookeeper.server.command of Apache
ZooKeeper 3.9, whose layout tools read.
"""

from __future__ import annotations

import os
import platform
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Final

from highwater.zookeeper.jute import Type
from highwater.zookeeper.service import Connection, Service

VERSION: Final = "3.9.3-highwater"
"""From the numbers clients conclude what the server can do."""


@dataclass(slots=True)
class Traffic:
    """Counts and latencies of one connection, or of the whole server."""

    received: int = 0
    sent: int = 0
    answered: int = 0
    total_ms: int = 0
    least_ms: int = 0
    most_ms: int = 0
    last_ms: int = 0

    def answer(self, ms: int) -> None:
        """Counts an answer that took this long."""
        self.least_ms = min(self.least_ms, ms) if self.answered else ms
        self.most_ms = max(self.most_ms, ms)
        self.answered += 1
        self.total_ms += ms
        self.last_ms = ms

    def reset(self) -> None:
        for name in self.__slots__:
            setattr(self, name, 0)


@dataclass(slots=True)
class Client:
    """A connection, with what `cons` and `stat` show of it."""

    port: int
    connection: Connection
    since_ms: int
    """When it began, by the wall clock."""
    traffic: Traffic = field(default_factory=Traffic)
    last: str = "NA"
    last_xid: int | None = None
    last_zxid: int = -1
    answered_ms: int = 0
    """When it got its last answer, by the server's own clock."""
    queued: int = 0

    @property
    def session_id(self) -> int:
        session = self.connection.session
        return 0 if session is None else session.id

    def asked(self, frame: bytes, zxid: int) -> None:
        xid, kind = int.from_bytes(frame[:4], signed=True), int.from_bytes(frame[4:8], signed=True)
        known = kind in tuple(Type)
        self.last = Type(kind).name.replace("_", "")[:4] if known else "NA"
        self.last_xid, self.last_zxid = xid, zxid

    def reset(self) -> None:
        self.traffic.reset()
        self.last, self.last_xid, self.last_zxid, self.answered_ms = "NA", None, -1, 0


@dataclass(frozen=True, slots=True)
class View:
    """The server at this moment."""

    service: Service
    clients: Sequence[Client]
    traffic: Traffic
    config: Mapping[str, object]
    now_ms: int
    """The time of the server's own clock, by which sessions end."""
    wall_ms: int
    uptime_ms: int
    folder: Path | None
    rejected: int


def allowed(text: str) -> frozenset[str]:
    """The words that shall be answered, from `*` or names with commas; raises ValueError."""
    if text.strip() == "*":
        return frozenset(_ANSWERS)
    words = frozenset(word.strip() for word in text.split(",") if word.strip())
    if unknown := sorted(words - set(_ANSWERS)):
        known = ",".join(sorted(_ANSWERS))
        raise ValueError(f"no four-letter word {unknown[0]}: take some of {known}, or *")
    return words


def known(word: bytes) -> str:
    """The word as text; empty if it is none of the four-letter words."""
    text = word.decode("ascii", "replace")
    return text if text in _ANSWERS else ""


def answer(word: str, view: View, words: frozenset[str]) -> str:
    if word not in words:
        return f"{word} is not executed because it is not in the whitelist.\n"
    return _ANSWERS[word](view)


# --- the server


def _ruok(_: View) -> str:
    return "imok"


def _isro(_: View) -> str:
    return "rw"


def _srvr(view: View) -> str:
    return f"Zookeeper version: {VERSION}\n{_state(view)}"


def _state(view: View) -> str:
    traffic = view.traffic
    average = round(_average(traffic), 4)
    return (
        f"Latency min/avg/max: {traffic.least_ms}/{average}/{traffic.most_ms}\n"
        f"Received: {traffic.received}\nSent: {traffic.sent}\nConnections: {len(view.clients)}\n"
        f"Outstanding: {_outstanding(view)}\nZxid: {view.service.ensemble.zxid:#x}\n"
        f"Mode: standalone\nNode count: {_nodes(view)}\n"
    )


def _average(traffic: Traffic) -> float:
    return traffic.total_ms / traffic.answered if traffic.answered else 0.0


def _outstanding(view: View) -> int:
    return sum(one.queued for one in view.clients)


def _nodes(view: View) -> int:
    """The number of znodes as Java's server counts them: the root twice, as `/` and as an empty
    name."""
    return len(view.service.ensemble.tree.nodes) + 1


def _conf(view: View) -> str:
    return "".join(f"{name}={value}\n" for name, value in view.config.items())


def _envi(_: View) -> str:
    system = platform.uname()
    values = {
        "zookeeper.version": VERSION,
        "host.name": system.node,
        "python.version": platform.python_version(),
        "python.executable": sys.executable,
        "os.name": system.system,
        "os.arch": system.machine,
        "os.version": system.release,
        "user.dir": os.getcwd(),
    }
    return "Environment:\n" + "".join(f"{name}={value}\n" for name, value in values.items())


def _mntr(view: View) -> str:
    zk, traffic = view.service.ensemble, view.traffic
    ephemerals = sum(map(len, zk.tree.ephemerals.values()))
    data = sum(len(path.encode()) + len(node.data) for path, node in zk.tree.nodes.items())
    values = {
        "version": VERSION,
        "server_state": "standalone",
        "ephemerals_count": ephemerals,
        "num_alive_connections": len(view.clients),
        "avg_latency": round(_average(traffic), 4),
        "min_latency": traffic.least_ms,
        "max_latency": traffic.most_ms,
        "outstanding_requests": _outstanding(view),
        "znode_count": _nodes(view),
        "global_sessions": len(zk.sessions),
        "local_sessions": 0,
        "packets_received": traffic.received,
        "packets_sent": traffic.sent,
        "watch_count": len(zk.watches),
        "approximate_data_size": data,
        "connection_rejected": view.rejected,
        "max_file_descriptor_count": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        "uptime": view.uptime_ms,
    }
    return "".join(f"zk_{name}\t{value}\n" for name, value in values.items())


def _dirs(view: View) -> str:
    return f"datadir_size: {_size(view, 'snapshot.*')}\nlogdir_size: {_size(view, 'log.*')}\n"


def _size(view: View, pattern: str) -> int:
    if view.folder is None:
        return 0
    return sum(path.stat().st_size for path in view.folder.glob(pattern))


# --- its clients


def _stat(view: View) -> str:
    clients = "".join(f"{_client(one)})\n" for one in view.clients)
    return f"Zookeeper version: {VERSION}\nClients:\n{clients}\n{_state(view)}"


def _cons(view: View) -> str:
    return "".join(f"{_client(one)}{_session(one)})\n" for one in view.clients) + "\n"


def _client(one: Client) -> str:
    reading = int(one.session_id != 0)
    counts = f"queued={one.queued},recved={one.traffic.received},sent={one.traffic.sent}"
    return f" {_address(one)}[{reading}]({counts}"


def _address(one: Client) -> str:
    host = one.connection.host
    return f"/{f'[{host}]' if ':' in host else host}:{one.port}"


def _session(one: Client) -> str:
    session, traffic = one.connection.session, one.traffic
    if session is None:
        return ""
    xid = "" if one.last_xid is None else f",lcxid={one.last_xid & 0xFFFFFFFFFFFFFFFF:#x}"
    return (
        f",sid={session.id:#x},lop={one.last},est={one.since_ms},to={session.timeout_ms}{xid}"
        f",lzxid={one.last_zxid & 0xFFFFFFFFFFFFFFFF:#x},lresp={one.answered_ms}"
        f",llat={traffic.last_ms},minlat={traffic.least_ms},avglat={int(_average(traffic))},maxlat={traffic.most_ms}"
    )


def _crst(view: View) -> str:
    for one in view.clients:
        one.reset()
    return "Connection stats reset.\n"


def _srst(view: View) -> str:
    view.traffic.reset()
    return "Server stats reset.\n"


def _dump(view: View) -> str:
    ends = view.service.expiries()
    sets = [(at, [id_ for _, id_ in same]) for at, same in groupby(
        sorted((at, id_) for id_, at in ends.items()), lambda one: one[0]
    )]  # fmt: skip
    lines = ["SessionTracker dump:", f"Session Sets ({len(sets)})/({len(ends)}):"]
    for at, ids in sets:
        lines += [f"{len(ids)} expire at {_date(view, at)}:", *(f"\t{id_:#x}" for id_ in ids)]
    owners = view.service.ensemble.tree.ephemerals
    lines += ["ephemeral nodes dump:", f"Sessions with Ephemerals ({len(owners)}):"]
    for id_, paths in owners.items():
        lines += [f"{id_:#x}:", *(f"\t{path}" for path in paths)]
    lines += ["Connections dump:", f"Connections Sets (1)/({len(view.clients)}):"]
    lines += [f"\tip: {_address(one)} sessionId: {one.session_id:#x}" for one in view.clients]
    return "".join(f"{line}\n" for line in lines)


def _date(view: View, at_ms: int) -> str:
    wall_s = (view.wall_ms + at_ms - view.now_ms) / 1000
    return time.strftime("%a %b %d %H:%M:%S UTC %Y", time.gmtime(wall_s))


# --- watches: of data, as Java's three words tell those alone


def _wchs(view: View) -> str:
    by_watcher = view.service.ensemble.watches.by_watcher()
    paths = {path for paths in by_watcher.values() for path in paths}
    total = sum(map(len, by_watcher.values()))
    return f"{len(by_watcher)} connections watching {len(paths)} paths\nTotal watches:{total}\n"


def _watched(view: View) -> Iterator[tuple[str, str]]:
    """(session, path)"""
    for watcher, paths in view.service.ensemble.watches.by_watcher().items():
        if isinstance(watcher, Connection) and watcher.session is not None:
            for path in paths:
                yield f"{watcher.session.id:#x}", path


def _wchc(view: View) -> str:
    return _table(_watched(view))


def _wchp(view: View) -> str:
    return _table((path, session) for session, path in _watched(view))


def _table(pairs: Iterator[tuple[str, str]]) -> str:
    found: dict[str, list[str]] = {}
    for head, one in pairs:
        found.setdefault(head, []).append(one)
    lines = [line for head, those in found.items() for line in (head, *(f"\t{x}" for x in those))]
    return "".join(f"{line}\n" for line in lines) + "\n"


_ANSWERS: Final[dict[str, Callable[[View], str]]] = {
    "conf": _conf, "cons": _cons, "crst": _crst, "dirs": _dirs, "dump": _dump, "envi": _envi,
    "isro": _isro, "mntr": _mntr, "ruok": _ruok, "srst": _srst, "srvr": _srvr, "stat": _stat,
    "wchc": _wchc, "wchp": _wchp, "wchs": _wchs,
}  # fmt: skip
