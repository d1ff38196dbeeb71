"""The journal on disk: a log that is written before each answer, and snapshots that cut it short.

Theory of operation.  `log.Z` has the changes from zxid Z on, `snapshot.Z` all changes up to Z.  A
start takes the latest snapshot that is whole, and then the logs; a record that a crash has left
half written at the end of the last log is cut off.  If anything else is damaged or missing, the
server names it and does not start: the end of a log says which log follows, and no snapshot is
without its log.  A write that has returned survives the death of the process (the kernel has it);
to survive a power loss, the function that `sync` returns must be called.

A snapshot is made by a child process, which sees the memory as it was at the fork while the loop
goes on; a new log begins at that moment.  With 30,000 znodes the fork takes 2 to 6 ms (40 to
150 MB), and with 300,000 up to 13.  Three snapshots are kept, and the logs since the oldest.
Deleting the others takes up to 20 ms of the kernel's time, so a thread does it.  Only the owner may
read these files.
"""

from __future__ import annotations

import gc
import os
import re
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Final

from highwater.zookeeper import journal
from highwater.zookeeper.codes import KeeperError
from highwater.zookeeper.ensemble import Ensemble

SNAPSHOT_AFTER: Final = 16 << 20
"""The size of the log after which a snapshot is made."""
KEPT: Final = 3
_NAME = re.compile(r"(snapshot|log)\.([0-9a-f]{1,16})")


class Unreadable(Exception):
    """The files are no valid journal; the message names the file, and the remedy."""


class Store:
    def __init__(
        self,
        folder: Path,
        snapshot_after: int = SNAPSHOT_AFTER,
        fsync: Callable[[int], None] | None = None,
    ) -> None:
        """`fsync` is called with a file's descriptor; if it is given, a caller of `write` must call
        `sync`, too."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder = self._folder = folder
        self._fsync = fsync
        self.unsynced = False
        """Whether something was written that a power loss would undo."""
        self._to_sync: list[int] = []
        """What must be synced in addition to the log: the folder, and logs that have ended."""
        self._snapshot_after = snapshot_after
        self._log = -1
        self._size = 0
        self._pending: list[bytes] = []
        self._child = 0
        self._cleaning = False
        """Whether files are being deleted that the last snapshot has made superfluous."""
        self._not_begun = ""
        self._failed: OSError | None = None

    @classmethod
    def begin_with(cls, folder: Path, zk: Ensemble) -> None:
        """Writes an ensemble from elsewhere as data with which a server can start."""
        store = cls(folder)
        store.snapshot_here(zk)
        store.close()

    # --- a start

    def load(self) -> Ensemble:
        """The ensemble that is on the disk, or an empty one; raises Unreadable."""
        try:
            return self._load()
        except OSError as error:
            raise Unreadable(f"{error.filename or self._folder}: {error.strerror}") from None

    def _load(self) -> Ensemble:
        zk = self._latest()
        logs, follows, end = self._numbered("log"), 0, 0
        for number, path in logs:
            if number > zk.zxid + 1:
                raise self._unreadable(path, f"the changes after {zk.zxid:#x} are missing")
            data, end = path.read_bytes(), 0
            try:
                for at, payload in journal.records(data):
                    journal.replay(zk, payload)
                    end, follows = at, journal.next_log(payload)
            except (ValueError, KeeperError) as error:
                raise self._unreadable(path, str(error)) from None
            if end < len(data) and not journal.torn(data, end, zk.zxid + 1):
                raise self._unreadable(path, f"it is damaged after {end} bytes")
            if self._fsync is not None:  # an earlier life may not have synced it
                self._to_sync.append(os.open(path, os.O_RDONLY))
                self.unsynced = True
        if follows > (logs[-1][0] if logs else 0):
            missing = self._folder / f"log.{follows:x}"
            raise self._unreadable(missing, "it is missing")
        for path in self._folder.glob("*.new"):
            path.unlink()
        if logs:
            self._log = os.open(logs[-1][1], os.O_WRONLY | os.O_APPEND)
            os.ftruncate(self._log, end)
        self._begin(zk.zxid + 1)
        return zk

    def _unreadable(self, path: Path, why: str) -> Unreadable:
        return Unreadable(f"{path}: {why}: restore a copy of it, or delete {self._folder}")

    def _latest(self) -> Ensemble:
        snapshots = self._numbered("snapshot")
        if snapshots:
            log = self._folder / f"log.{snapshots[-1][0] + 1:x}"
            if not log.exists():
                raise self._unreadable(log, f"it is missing, and follows {snapshots[-1][1].name}")
        for _, path in reversed(snapshots):
            found = journal.restored(path.read_bytes())
            if found is not None:
                return found
        if snapshots:
            raise self._unreadable(snapshots[-1][1], "no snapshot is whole")
        return Ensemble()

    def _numbered(self, kind: str) -> list[tuple[int, Path]]:
        found = []
        for path in self._folder.iterdir():
            match = _NAME.fullmatch(path.name)
            if match is not None and match[1] == kind:
                found.append((int(match[2], 16), path))
        return sorted(found)

    def _begin(self, zxid: int) -> None:
        """Begins a new log, and names it at the end of the one before."""
        path = self._folder / f"log.{zxid:x}"
        log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        if self._fsync is not None:
            self._to_sync.append(os.open(self._folder, os.O_RDONLY))
        if self._log >= 0:
            if not os.path.sameopenfile(self._log, log):
                os.write(self._log, journal.goes_on(zxid))
            if self._fsync is None:
                os.close(self._log)
            else:
                self._to_sync.append(self._log)
        self._log, self._size = log, os.fstat(log).st_size

    # --- changes

    def note(self, record: bytes) -> None:
        """Keeps a record for the next `write`."""
        self._pending.append(record)

    def write(self, zk: Ensemble) -> None:
        """Writes all that was noted.  After an OSError nothing more may be answered, and each later
        call raises it again: a record behind half a record would be lost at the next start."""
        if self._failed is not None:
            raise self._failed
        if not self._pending:
            return
        data = b"".join(self._pending)
        self._pending.clear()
        written = 0
        try:
            while written < len(data):
                written += os.write(self._log, data[written:])
        except OSError as error:
            self._failed = error
            raise
        self.unsynced = True
        self._size += len(data)
        if self._size >= self._snapshot_after and not self._child:
            self.snapshot(zk)

    def sync(self) -> Callable[[], None]:
        """Returns a function, for a thread, that puts all that was written by now on the disk
        itself; if it raises an OSError, nothing of that may be answered."""
        assert self._fsync is not None
        fsync, log, ended = self._fsync, self._log, self._to_sync
        self._to_sync, self.unsynced = [], False

        def put() -> None:
            for file in ended:
                fsync(file)
                os.close(file)
            fsync(log)

        return put

    # --- snapshots

    def snapshot(self, zk: Ensemble) -> None:
        """Begins a snapshot and a new log; `reap` notices when the snapshot is there."""
        self._begin(zk.zxid + 1)
        try:
            self._child = os.fork()
        except OSError as error:
            self._not_begun = f"no snapshot can be begun ({error}): the log goes on, and grows"
            return
        if self._child:
            return
        code = 1
        try:
            os.nice(10)  # clients that wait for an answer come first
            gc.disable()  # a collection would write to, and so copy, shared memory
            os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # else it keeps clients' connections open
            self._write_snapshot(zk)
            code = 0
        finally:
            os._exit(code)

    def snapshot_here(self, zk: Ensemble) -> None:
        """Makes a snapshot without a child process; the caller waits for it."""
        self._begin(zk.zxid + 1)
        self._write_snapshot(zk)

    def _write_snapshot(self, zk: Ensemble) -> None:
        path = self._folder / f"snapshot.{zk.zxid:x}"
        with open(f"{path}.new", "wb", opener=_private) as file:
            for record in journal.snapshot(zk):
                file.write(record)
            file.flush()
            os.fsync(file.fileno())
        os.rename(f"{path}.new", path)
        folder = os.open(self._folder, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)

    def reap(self, say: Callable[[str], None]) -> Callable[[], None] | None:
        """Checks whether a snapshot has ended; if so, returns a function, for a thread, that
        deletes the files no longer needed.  No other snapshot begins before that is done."""
        if self._not_begun:
            say(self._not_begun)
            self._not_begun = ""
        if not self._child or self._cleaning:
            return None
        pid, status = os.waitpid(self._child, os.WNOHANG)
        if not pid:
            return None
        self._cleaning = True
        if status:
            say(f"a snapshot failed in {self._folder}: the log goes on, and grows")
        return partial(self._clean, failed=bool(status))

    def _clean(self, *, failed: bool) -> None:
        try:
            if failed:
                for path in self._folder.glob("*.new"):
                    path.unlink()  # the unfinished snapshot may have filled the disk
                return
            snapshots = self._numbered("snapshot")
            for _, path in snapshots[:-KEPT]:
                path.unlink()
            oldest = snapshots[-KEPT:][0][0]
            logs = self._numbered("log")
            for (_, path), (after, _) in pairwise(logs):
                if after <= oldest + 1:
                    path.unlink()
        finally:
            self._child, self._cleaning = 0, False

    def close(self) -> None:
        if self._child and not self._cleaning:
            os.waitpid(self._child, 0)
            self._child = 0
        for file in self._to_sync:
            os.close(file)
        self._to_sync = []
        if self._log >= 0:
            os.close(self._log)
            self._log = -1


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
