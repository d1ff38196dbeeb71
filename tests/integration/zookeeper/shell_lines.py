"""Lines for ZooKeeper's shell, and what of its output is the same on every server."""

from __future__ import annotations

import re
import subprocess
from typing import NamedTuple

SHELL = "org.apache.zookeeper.ZooKeeperMainWithTlsSupportForKafka"
"""The class behind `zookeeper-shell`."""
LINES = """\
ls /
create /a one
create /a again
create /a/b
create -s /a/s- x
create -e /a/e gone
create -e -s /a/es- gone
create /a/e/child x
create /no/parent x
get /a
get -s /a
get /none
set /a two
set -v 7 /a three
set -v 1 /a three
set -s /a four
stat /a
stat /none
ls -s /a
ls -R /a
create /a/watched 1
get -w /a/watched
set /a/watched 2
stat -w /a/watched
delete /a/watched
addWatch -m PERSISTENT_RECURSIVE /a
create /a/b/c
removewatches /a
getAllChildrenNumber /a
getEphemerals /a
delete /a
delete -v 9 /a/b/c
delete -v 0 /a/b/c
setAcl -v 9 /a world:anyone:r
setAcl /a world:anyone:r
getAcl -s /a
set /a five
addauth digest alice:secret
create /locked x auth::crwda
getAcl /locked
create /of-bob x digest:bob:xxx=:r
getAcl /of-bob
set /of-bob y
setAcl -R /locked world:anyone:cdrwa
create /ip x ip:10.0.0.1:r
get /ip
create /unknown x scheme:bob:cdrwa
whoami
sync /a
create /limited
setquota -n 3 /limited
delquota -n /limited
config
deleteall /a
ls /
close
connect
ls /
quit
"""
"""Each command of the shell, with its errors, but for what the embedded server lacks."""
_SAME = re.compile(
    r"(?P<time>^[cm]time = .*)|(?P<place>(?<=^Connecting to ).*)|^WARN .*|^\s*at .*|^WATCHER::$"
)


class Shown(NamedTuple):
    out: list[str]
    err: list[str]
    events: set[str]
    """Another thread of the shell prints them, so that their place among the answers is chance."""


def shown(done: subprocess.CompletedProcess[str]) -> Shown:
    """Without times, places, empty lines, and what the shell logs; the names of `whoami`, which
    Java's server keeps in a hash table, in order."""
    lines = [_SAME.sub("", line) for line in done.stdout.splitlines()]
    events = {line for line in lines if line.startswith("WatchedEvent ")}
    ids = iter(sorted(line for line in lines if line.startswith(("ip: ", "digest: "))))
    out = [
        next(ids) if line.startswith(("ip: ", "digest: ")) else line
        for line in lines if line and line not in events
    ]  # fmt: skip
    err = [line for line in done.stderr.splitlines() if _SAME.sub("", line)]
    return Shown(out, err, {one for one in events if "state:Closed" not in one})
