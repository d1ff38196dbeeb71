"""Rebuilds the state that Java's ZooKeeper would start with from its files, as an `Ensemble`.

Theory of operation.  As in Java, it takes the latest snapshot that is whole, and each change in the
logs after it.  Java takes a snapshot while changes are made, so it may contain some of them, or
parts of them, already.  To carry those out again must do no harm.  So changes are accepted here
that the tree would refuse: a znode to create may exist, one to delete may be gone.

Java does not check whether a change is missing.  Here the zxids must follow each other, and the
digest at the end must be that of the tree; otherwise a log that somebody has deleted would be
skipped silently.  Only the loss of the last log goes unnoticed, if no snapshot shows it.

Source: FileTxnSnapLog.restore, DataTree.processTxn and ZooKeeperServer.loadData of Apache
ZooKeeper 3.9.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from highwater.zookeeper.acl import Acl
from highwater.zookeeper.ensemble import Ensemble, Session
from highwater.zookeeper.javas_files import (
    CONTAINER,
    TTL,
    Change,
    Closed,
    Create,
    Delete,
    Entry,
    Opened,
    SetAcl,
    SetData,
    Snapshot,
    digest_of,
)
from highwater.zookeeper.tree import Moment, Znode, parent_of

_SECRET = 0xB3415C00
_EPOCH_BITS = 32


class NotHere(Exception):
    """The import cannot go on; the message names what is wrong, and the remedy."""


def password_of(session_id: int) -> bytes:
    """A session's password, as Java computes it whenever it is needed: sixteen bytes of a random
    generator whose seed comes from the id.

    Source: ZooKeeperServer.generatePasswd, and java.util.Random.
    """
    mask = (1 << 48) - 1
    state = ((session_id ^ _SECRET) ^ 0x5DEECE66D) & mask
    found = b""
    for _ in range(4):
        state = (state * 0x5DEECE66D + 0xB) & mask
        found += (state >> 16).to_bytes(4, "little")
    return found


class Restored:
    """The state while it is rebuilt, change by change."""

    def __init__(self, snapshot: Snapshot, zxid: int) -> None:
        self.zxid = zxid
        self._snapshot = snapshot
        self._sessions = dict(snapshot.sessions)
        self._nodes = snapshot.nodes
        self._digest = snapshot.digest if snapshot.digest_zxid == zxid else None
        self._own: dict[int, dict[str, None]] = {}
        for path, node in self._nodes.items():
            if node.owner:
                self._own.setdefault(node.owner, {})[path] = None

    def apply(self, entry: Entry) -> None:
        """Carries out a change, unless the snapshot has it; raises NotHere if some are missing."""
        if entry.zxid <= self.zxid:
            return
        if not _follows(entry.zxid, self.zxid):
            raise NotHere(
                f"the change {entry.zxid:#x} comes after {self.zxid:#x}, and those between are"
                " missing: the log that has them was deleted"
            )
        when = Moment(entry.zxid, entry.ms)
        for change in entry.changes:
            self._change(change, entry.session, when)
        self.zxid, self._digest = entry.zxid, entry.digest

    def _change(self, change: Change, session: int, when: Moment) -> None:
        match change:
            case Create():
                self._create(change, when)
            case Delete():
                self._delete(change.path, when.zxid)
            case SetData():
                if (node := self._nodes.get(change.path)) is not None:
                    node.data, node.version = change.data, change.version
                    node.mzxid, node.mtime = when
            case SetAcl():
                if (node := self._nodes.get(change.path)) is not None:
                    node.acl, node.aversion = change.acl, change.aversion
            case Opened():
                self._sessions[session] = change.timeout_ms
            case Closed():
                self._sessions.pop(session, None)
                for path in (*change.paths, *self._own.get(session, ())):
                    self._delete(path, when.zxid)

    def _create(self, change: Create, when: Moment) -> None:
        path, parent = change.path, self._nodes.get(parent_of(change.path))
        if parent is None:
            return
        created = change.cversion if change.cversion >= 0 else parent.created + 1
        there = self._nodes.get(path)
        if (there is None or change.adjusts) and created > parent.created:
            parent.created, parent.pzxid = created, when.zxid
        if there is not None:
            there.acl = change.acl
            return
        self._nodes[path] = Znode(
            change.data, change.acl, *(when.zxid,) * 3, *(when.ms,) * 2, change.owner
        )
        parent.children[path.rpartition("/")[2]] = None
        if change.owner:
            self._own.setdefault(change.owner, {})[path] = None

    def _delete(self, path: str, zxid: int) -> None:
        parent = self._nodes.get(parent_of(path))
        if parent is None:
            return
        parent.children.pop(path.rpartition("/")[2], None)
        parent.pzxid = max(parent.pzxid, zxid)
        node = self._nodes.pop(path, None)
        if node is None:
            return
        if node.children:
            raise NotHere(f"the change {zxid:#x} deletes {path}, which has children")
        if node.owner:
            self._own.get(node.owner, {}).pop(path, None)

    def ensemble(self) -> Ensemble:
        """The ensemble, after the last change; raises NotHere."""
        self._check_end()
        for path, node in self._nodes.items():
            self._check(path, node)
        for owner in [one for one in self._own if one not in self._sessions]:
            for path in self._own[owner].copy():  # Java deletes these at its start
                self._delete(path, self.zxid)
        zk = Ensemble()
        zk.zxid, zk.tree.nodes = self.zxid, self._nodes
        zk.tree.ephemerals = {owner: own for owner, own in self._own.items() if own}
        for id_, timeout_ms in self._sessions.items():
            zk.sessions[id_] = Session(id_, timeout_ms, password_of(id_))
        return zk

    def _check_end(self) -> None:
        last = self._snapshot.digest_zxid
        if last > self.zxid:
            raise NotHere(
                f"the snapshot holds changes up to {last:#x}, and the logs end at {self.zxid:#x}:"
                " the log that has the others is missing"
            )
        if self._digest is not None and self._digest != digest_of(self._nodes):
            raise NotHere(
                f"the znodes are not those of the digest that is kept of {self.zxid:#x}: start"
                " and stop Java's ZooKeeper here once, and import again"
            )

    def _check(self, path: str, node: Znode) -> None:
        if node.owner == CONTAINER:
            raise NotHere(f"{path} is a container, which the embedded ZooKeeper has not: delete it")
        if node.owner not in self._sessions and TTL <= node.owner < 0:
            raise NotHere(
                f"{path} has a time to live, which the embedded ZooKeeper has not: delete it"
            )
        _check_acl(path, node.acl)


def _check_acl(path: str, acl: Sequence[Acl]) -> None:
    for entry in acl:
        if entry.scheme != "ip":
            continue
        try:
            ipaddress.ip_network(entry.id, strict=False)
        except ValueError:
            raise NotHere(
                f"{path} is open to the address {entry.id!r}, which cannot be read: change its"
                " access control list"
            ) from None


def _follows(zxid: int, last: int) -> bool:
    """Whether a zxid is the next one, or the first of a later epoch (the upper 32 bits)."""
    return zxid == last + 1 or (
        zxid >> _EPOCH_BITS > last >> _EPOCH_BITS and zxid & ((1 << _EPOCH_BITS) - 1) == 1
    )
