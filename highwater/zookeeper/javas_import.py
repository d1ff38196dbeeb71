"""Converts the data of Java's ZooKeeper in a folder to ours: `highwater zookeeper import`.

Nothing is changed before all is read and found sound.  Then our snapshot is written, and the log
that continues it.  The renaming of `version-2` comes last, and it alone decides whose data the
folder has: if the import is interrupted before, Java's data are as they were.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from highwater.zookeeper import javas_files
from highwater.zookeeper.ensemble import Ensemble
from highwater.zookeeper.javas_data import NotHere, Restored
from highwater.zookeeper.javas_files import Damaged
from highwater.zookeeper.store import Store

JAVAS: Final = "version-2"
_NAME = re.compile(r"(snapshot|log)\.([0-9a-f]{1,16})(\.gz|\.snappy)?")
MOST: Final = 1 << 30
"""The most bytes of an unpacked snapshot."""


@dataclass(frozen=True, slots=True)
class Imported:
    znodes: int
    sessions: int
    zxid: int
    kept: Path
    """Where Java's data are now."""


def take_over(data: Path, warn: Callable[[str], None]) -> Imported:
    """Imports the data in the folder that has `version-2`; raises NotHere with a line for users."""
    if mine := sorted(path.name for path in data.glob("*.*") if _NAME.fullmatch(path.name)):
        raise NotHere(
            f"{data} has data of the embedded ZooKeeper already ({', '.join(mine)}): delete them"
            " to import again"
        )
    zk = read(data / JAVAS, warn)
    for line in without_effect(zk):
        warn(line)
    Store.begin_with(data, zk)
    _sync(data)
    kept = _free(data / f"{JAVAS}.imported")
    os.rename(data / JAVAS, kept)
    return Imported(len(zk.tree.nodes), len(zk.sessions), zk.zxid, kept)


def _sync(folder: Path) -> None:
    """Puts the names of our files on the disk, before Java's folder is renamed."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _free(path: Path) -> Path:
    number, found = 1, path
    while found.exists():
        number += 1
        found = path.with_name(f"{path.name}-{number}")
    return found


def read(folder: Path, warn: Callable[[str], None]) -> Ensemble:
    """The state that Java would start with; raises NotHere."""
    logs = _numbered(folder, "log")
    restored, newer = _latest(folder, warn)
    # the log that holds the change after the snapshot, and those that follow
    first = max((n for n, (zxid, _) in enumerate(logs) if zxid <= restored.zxid + 1), default=0)
    if not logs and restored.zxid:
        raise NotHere(
            f"{folder} has snapshots and no log: put the files log.* of its dataLogDir there"
        )
    for number, (_, path) in enumerate(logs[first:], first + 1):
        data = path.read_bytes()
        if not data and number == len(logs):
            break  # a log that was begun and never written to
        try:
            for entry in javas_files.entries(data):
                restored.apply(entry)
        except Damaged as error:
            raise NotHere(f"{path}: {error}: restore a copy of it") from None
        except NotHere as error:
            raise NotHere(f"{path}: {error}") from None
    if newer > restored.zxid:
        raise NotHere(
            f"{folder}: the logs end at {restored.zxid:#x}, and there is a later snapshot, which is"
            " damaged: restore a copy of it"
        )
    try:
        return restored.ensemble()
    except NotHere as error:
        raise NotHere(f"{folder}: {error}") from None


def without_effect(zk: Ensemble) -> Iterator[str]:
    """A warning for each thing that is kept as it is, but has no effect in our server."""
    quota = zk.tree.nodes.get("/zookeeper/quota")
    if quota is not None and quota.children:
        yield "the quotas below /zookeeper/quota have no effect: the embedded ZooKeeper has none"
    schemes: dict[str, str] = {}
    for path, node in zk.tree.nodes.items():
        for entry in node.acl:
            schemes.setdefault(entry.scheme, path)
    for scheme, path in sorted(schemes.items()):
        if scheme not in ("world", "digest", "ip"):
            yield (
                f"{path} is open to logins by {scheme}, which the embedded ZooKeeper has not:"
                " nobody is let in by that"
            )


def _latest(folder: Path, warn: Callable[[str], None]) -> tuple[Restored, int]:
    """The state of the latest whole snapshot, and the zxid of the latest damaged one."""
    snapshots, newer, why = _numbered(folder, "snapshot"), 0, ""
    for zxid, path in reversed(snapshots):
        try:
            found = javas_files.snapshot(_unpacked(path))
        except Damaged as error:
            why = why or f"{path}: {error}"
            newer = max(newer, zxid)
            continue
        if why:
            warn(f"{why}: left out, as ZooKeeper does; {path.name} and the logs are taken")
        return Restored(found, zxid), newer
    if snapshots:
        raise NotHere(f"{why}: no snapshot is whole: restore a copy of it")
    raise NotHere(f"{folder} has no snapshot, without which Java's ZooKeeper does not start either")


def _numbered(folder: Path, kind: str) -> list[tuple[int, Path]]:
    found = []
    for path in folder.iterdir():
        match = _NAME.fullmatch(path.name)
        if match is not None and match[1] == kind:
            found.append((int(match[2], 16), path))
    return sorted(found)


def _unpacked(path: Path) -> bytes:
    if path.suffix == ".snappy":
        raise NotHere(
            f"{path} is packed by snappy, which is not read: start and stop ZooKeeper once without"
            " zookeeper.snapshot.compression.method"
        )
    data = path.read_bytes()
    if path.suffix != ".gz":
        return data
    unpacking = zlib.decompressobj(wbits=31)
    try:
        found = unpacking.decompress(data, MOST)
    except zlib.error as error:
        raise Damaged(0, f"it cannot be unpacked: {error}") from None
    if not unpacking.eof:
        raise Damaged(len(data), "it ends too early, or is too large when it is unpacked")
    return found
