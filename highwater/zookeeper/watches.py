"""Decides who is notified of a change: by one-shot watches, and by persistent ones, for one path or
for all paths below it.

A watcher is a connection, not a session: its watches end with it.  A change costs one step for each
watcher of its path, and, if somebody watches recursively, one lookup for each parent of the path.

Source: WatchManager, DataTree.addWatch and setWatches.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from highwater.zookeeper import acl as rights
from highwater.zookeeper.acl import Acl
from highwater.zookeeper.codes import Code, KeeperError
from highwater.zookeeper.tree import Change, Event, Tree, parent_of


class Mode(IntEnum):
    """The modes of addWatch.  Source: ZooDefs.AddWatchModes."""

    PERSISTENT = 0
    PERSISTENT_RECURSIVE = 1


class Type(IntEnum):
    """Which watches removeWatches removes.  Source: Watcher.WatcherType."""

    CHILDREN = 1
    DATA = 2
    ANY = 3
    PERSISTENT = 4
    PERSISTENT_RECURSIVE = 5


class Told(NamedTuple):
    watcher: Any
    """The watcher as it was given to `Watches`."""
    event: Event
    path: str
    acl: Sequence[Acl] = rights.OPEN
    """The znode's ACL: who may read it is notified."""


_ONCE, _PERSISTENT, _RECURSIVE = 1, 2, 4
_ANY = _ONCE | _PERSISTENT | _RECURSIVE
_MODES = {
    Type.CHILDREN: _ONCE,
    Type.DATA: _ONCE,
    Type.ANY: _ANY,
    Type.PERSISTENT: _PERSISTENT,
    Type.PERSISTENT_RECURSIVE: _RECURSIVE,
}
_Table = dict[str, dict[Hashable, int]]
"""Path -> watcher -> the modes in which it watches."""


class Watches:
    """All watches.  A persistent watch is in both tables; a recursive one is only in that of data,
    whose events report each znode below it."""

    def __init__(self) -> None:
        self._data: _Table = {}
        self._child: _Table = {}
        self._recursive = 0
        """The number of recursive watches."""
        self._paths: dict[Hashable, dict[str, None]] = {}

    def __len__(self) -> int:
        return sum(len(found) for table in (self._data, self._child) for found in table.values())

    def count(self, watcher: Hashable) -> int:
        """How many paths a watcher watches."""
        return len(self._paths.get(watcher, ()))

    def by_watcher(self) -> dict[Hashable, list[str]]:
        """Watcher -> the paths whose data it watches, once or persistently."""
        found: dict[Hashable, list[str]] = {}
        for path, watchers in self._data.items():
            for watcher in watchers:
                found.setdefault(watcher, []).append(path)
        return found

    # --- what is watched

    def data(self, path: str, watcher: Hashable) -> None:
        self._add(self._data, path, watcher, _ONCE)

    def children(self, path: str, watcher: Hashable) -> None:
        self._add(self._child, path, watcher, _ONCE)

    def lasting(self, path: str, watcher: Hashable, mode: Mode) -> None:
        if mode is Mode.PERSISTENT_RECURSIVE:
            self._add(self._data, path, watcher, _RECURSIVE)
        else:
            self._add(self._data, path, watcher, _PERSISTENT)
            self._add(self._child, path, watcher, _PERSISTENT)

    def _add(self, table: _Table, path: str, watcher: Hashable, mode: int) -> None:
        here = table.setdefault(path, {})
        before = here.get(watcher, 0)
        here[watcher] = before | mode
        self._recursive += bool(mode & ~before & _RECURSIVE)
        self._paths.setdefault(watcher, {})[path] = None

    def has(self, path: str, watcher: Hashable, which: Type) -> bool:
        modes = _MODES[which]
        return any(table.get(path, {}).get(watcher, 0) & modes for table in self._tables(which))

    def remove(self, path: str, watcher: Hashable, which: Type) -> bool:
        """Removes watches; returns whether there was one."""
        there = self.has(path, watcher, which)
        for table in self._tables(which):
            self._take(table, path, watcher, _MODES[which])
        if there and not self.has(path, watcher, Type.ANY):
            self._forget(path, watcher)
        return there

    def _tables(self, which: Type) -> tuple[_Table, ...]:
        match which:
            case Type.CHILDREN:
                return (self._child,)
            case Type.DATA:
                return (self._data,)
        return self._data, self._child

    def end(self, watcher: Hashable) -> None:
        """Ends all watches of a watcher whose connection has ended."""
        for path in self._paths.pop(watcher, {}):
            for table in self._tables(Type.ANY):
                self._take(table, path, watcher, _ANY)

    def _take(self, table: _Table, path: str, watcher: Hashable, modes: int) -> None:
        here = table.get(path)
        if here is None or watcher not in here:
            return
        before = here[watcher]
        self._recursive -= bool(before & modes & _RECURSIVE)
        if left := before & ~modes:
            here[watcher] = left
            return
        del here[watcher]
        if not here:
            del table[path]

    def _forget(self, path: str, watcher: Hashable) -> None:
        own = self._paths[watcher]
        own.pop(path, None)
        if not own:
            del self._paths[watcher]

    # --- what is told

    def fire(self, changes: Iterable[Change]) -> list[Told]:
        """The notifications for these changes.  A one-shot watch is then over, even if its watcher
        may not be notified."""
        told: list[Told] = []
        for event, path, acl in changes:
            seen: dict[Hashable, None] = {}
            if event is not Event.CHILDREN_CHANGED:
                self._trigger(self._data, path, seen)
                self._trigger_above(path, seen)
            if event in (Event.DELETED, Event.CHILDREN_CHANGED):
                self._trigger(self._child, path, seen)
            told += [Told(watcher, event, path, acl) for watcher in seen]
        return told

    def _trigger(self, table: _Table, path: str, seen: dict[Hashable, None]) -> None:
        for watcher in list(table.get(path, ())):
            seen[watcher] = None
            self._take(table, path, watcher, _ONCE)
            if not self.has(path, watcher, Type.ANY):
                self._forget(path, watcher)

    def _trigger_above(self, path: str, seen: dict[Hashable, None]) -> None:
        while self._recursive and path != "/":
            path = parent_of(path)
            for watcher, modes in self._data.get(path, {}).items():
                if modes & _RECURSIVE:
                    seen[watcher] = None

    # --- after a reconnection

    def restore(
        self,
        watcher: Hashable,
        tree: Tree,
        seen_zxid: int,
        data: Iterable[str] = (),
        exist: Iterable[str] = (),
        children: Iterable[str] = (),
        lasting: Iterable[str] = (),
        recursive: Iterable[str] = (),
    ) -> list[Told]:
        """Sets the watches of an earlier connection; returns the notifications that the client has
        missed since this zxid."""
        told: list[Told] = []

        def missed(event: Event, path: str) -> None:
            told.append(Told(watcher, event, path))

        for path in data:
            node = tree.nodes.get(path or "/")
            if node is None:
                missed(Event.DELETED, path)
            elif node.mzxid > seen_zxid:
                missed(Event.DATA_CHANGED, path)
            else:
                self.data(path, watcher)
        for path in exist:
            if (path or "/") in tree.nodes:
                missed(Event.CREATED, path)
            else:
                self.data(path, watcher)
        for path in children:
            node = tree.nodes.get(path or "/")
            if node is None:
                missed(Event.DELETED, path)
            elif node.pzxid > seen_zxid:
                missed(Event.CHILDREN_CHANGED, path)
            else:
                self.children(path, watcher)
        for path in lasting:
            self.lasting(path, watcher, Mode.PERSISTENT)
        for path in recursive:
            self.lasting(path, watcher, Mode.PERSISTENT_RECURSIVE)
        return told


def mode_of(number: int) -> Mode:
    """The mode with this number; raises MARSHALLING_ERROR, because in Java AddWatchMode.fromInt
    fails while the request is read."""
    try:
        return Mode(number)
    except ValueError:
        raise KeeperError(Code.MARSHALLING_ERROR) from None
