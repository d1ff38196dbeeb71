"""Which ZooKeeper a cluster of processes has: Highwater's own, Java's, or one that runs elsewhere.

A folder keeps the ZooKeeper that it had: another one would begin empty, while the brokers' data
belong to the old one's.  The old one is recognized by the form of the data that it has left, or, if
it left none here, by the file `zookeeper/which`.
"""

from __future__ import annotations

import re
from pathlib import Path

from highwater.child_processes import StartError

JAVA, EMBEDDED = "java", "embedded"
"""ZooKeeper's own server, and Highwater's (`highwater.zookeeper`)."""
FORMS = "java, embedded or HOST:PORT[,HOST:PORT...][/CHROOT]"
_WHICH = "which"
_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\s,/:\[\]]+):(\d{1,5})")


def is_elsewhere(choice: str) -> bool:
    """Whether a choice consists of the addresses of a ZooKeeper that runs already."""
    return ":" in choice


def addresses(choice: str) -> tuple[list[tuple[str, int]], str]:
    """The (host, port)s of a ZooKeeper that runs elsewhere, and its chroot: empty, or /PATH.

    Raises StartError where the text makes no sense.
    """
    hosts, slash, chroot = choice.partition("/")
    found = [_HOST.fullmatch(word) for word in hosts.split(",")]
    places = [(m[1].strip("[]"), int(m[2])) for m in found if m]
    wrong = None in found or any(not 0 < port < 65536 for _, port in places)
    if wrong or (slash and (not chroot or "//" in f"/{chroot}")):
        raise StartError(f"a ZooKeeper is {FORMS}, and not {choice!r}")
    return places, f"/{chroot.strip('/')}" if slash else ""


def checked(asked: str) -> str:
    """Returns a choice that makes sense (empty: none was made); raises StartError otherwise."""
    if asked not in ("", JAVA, EMBEDDED):
        addresses(asked)
    return asked


def chosen(folder: Path, asked: str, otherwise: str = EMBEDDED) -> str:
    """The kind of ZooKeeper of the cluster whose ZooKeeper has, or will have, this folder.

    It is the kind that the folder had, else the one that is asked for, else `otherwise`.  Raises
    StartError where these two differ, or where the folder has brokers' data but no ZooKeeper's.
    """
    had = _had(folder)
    if asked and had and asked != had:
        take = f", take it over (highwater zookeeper import {folder.parent})" * (had == JAVA)
        raise StartError(
            f"the cluster in {folder.parent} has its data in the ZooKeeper {had}: use"
            f" --zookeeper {had}{take}, or delete the cluster (highwater down --delete)"
        )
    if not had and asked in ("", JAVA, EMBEDDED):
        for data in sorted(folder.parent.glob("broker-*/data/meta.properties")):
            raise StartError(
                f"{data.parent} has a broker's data, and {folder} has nothing of the ZooKeeper that"
                " they belong to: put it back, or delete the cluster (highwater down --delete)"
            )
    return had or asked or otherwise


def remember(folder: Path, choice: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _WHICH).write_text(f"{choice}\n")


def _had(folder: Path) -> str:
    """The kind of ZooKeeper that a folder had: by its data first, because `highwater zookeeper
    import` may have converted them since; else by the file `which`."""
    if (folder / "data" / "version-2").exists():
        return JAVA
    if any((folder / "data").glob("log.*")):
        return EMBEDDED
    which = folder / _WHICH
    return which.read_text().strip() if which.exists() else ""
