"""The history of a run: one JSON line for each phase of each operation, written as it happens.

Theory of operation.  A checker can only be as good as its data, so the history is append-only, is
written by the clients themselves at the moment of the phase, and distinguishes three endings:

* `ok`    the cluster said yes;
* `fail`  an error that *proves* that nothing was appended (MESSAGE_TOO_LARGE,
          INVALID_PRODUCER_EPOCH, ...);
* `info`  everything else: a time-out, a lost connection, NOT_ENOUGH_REPLICAS_AFTER_APPEND.  The
          record may be in the log or not, and a harness that counts these as failures misses
          phantom records, or invents them.

Each operation has an `invoke` line and one ending line, joined by `op`.  A poll that returns n
records has one `invoke` line and n `ok` lines of the same `poll_id`, in the order of the records;
an empty poll has a single `ok` line with n = 0 and no partition.  `phase` is "run" while faults may
be active, "final" for the full read after healing.

`t_ns` is the machine's monotonic clock (the same for all processes of one machine); lines of one
`process` are in the order of its program.  Times in files of the harness (faults.jsonl,
witness.jsonl) are of the same clock.

The fields of a line are in `highwater.verdict.history_schema`, the other files of a run's folder in
`highwater.cluster.run_folder`.
"""

from __future__ import annotations

import json
import os
import queue
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from highwater.verdict.history_schema import require_columns

OK, FAIL, INFO, INVOKE = "ok", "fail", "info", "invoke"

PROVES_NOTHING_APPENDED: Final = frozenset(
    {
        "NOT_LEADER_OR_FOLLOWER",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "LEADER_NOT_AVAILABLE",
        "MESSAGE_TOO_LARGE",
        "RECORD_LIST_TOO_LARGE",
        "INVALID_REQUIRED_ACKS",
        "INVALID_TOPIC_EXCEPTION",
        "INVALID_RECORD",
        "INVALID_TIMESTAMP",
        "CORRUPT_MESSAGE",
        "NOT_ENOUGH_REPLICAS",
        "INVALID_PRODUCER_EPOCH",
        "UNSUPPORTED_FOR_MESSAGE_FORMAT",
        "TOPIC_AUTHORIZATION_FAILED",
    }
)
"""Errors after which the record is certainly not in the log, if it was sent **once**.

After a retry none of them proves anything: the first attempt may have been appended and its answer
lost.  So a workload may record `fail` only if the client made one attempt, or never sent.  With
acks=all, NOT_LEADER_OR_FOLLOWER proves nothing either: a waiting producer also gets it when its
leader is demoted after the append.
"""


def ending_of(error: str, *, attempts: int, acks: int) -> str:
    """`fail` where the error proves that nothing was appended, else `info`."""
    if attempts != 1 or error not in PROVES_NOTHING_APPENDED:
        return INFO
    if error == "NOT_LEADER_OR_FOLLOWER" and acks == -1:
        return INFO
    return FAIL


def make_value(run: str, process: str, sequence: int, t_ns: int, size: int = 0) -> str:
    """A unique value that describes itself: run, process, sequence, time, checksum, padding.

    >>> check_value(make_value("r1", "p", 3, 17))
    ('r1', 'p', 3, 17)
    """
    text = f"{run}|{process}|{sequence}|{t_ns}|"
    text += f"{zlib.crc32(text.encode()):08x}"
    return text if len(text) >= size else text + "|" + "." * (size - len(text) - 1)


def check_value(value: str) -> tuple[str, str, int, int] | None:
    """(run, process, sequence, t_ns) of a value of `make_value`; None where it is none."""
    parts = value.split("|")
    if len(parts) < 5 or (len(parts) == 6 and parts[5].strip(".")) or len(parts) > 6:
        return None
    text = "|".join(parts[:4]) + "|"
    if f"{zlib.crc32(text.encode()):08x}" != parts[4]:
        return None
    return parts[0], parts[1], int(parts[2]), int(parts[3])


class HistoryError(Exception):
    """The history cannot be written: the run proves nothing from here on."""


class HistoryWriter:
    """Appends lines to one file from any number of threads; one writer a file.

    Bounded: if the disk is slower than the clients, `write` waits.  Crash-safe: lines reach the
    operating system in whole batches, and the disk at `close`.  A killed process loses at most the
    lines in the queue, and leaves at most one torn last line, which the reader drops.
    """

    def __init__(self, path: Path, *, run: str, seed: int, capacity: int = 10_000) -> None:
        self.path = path
        self._common = {"run": run, "seed": seed}
        self._lines: queue.Queue[dict[str, Any] | threading.Event | None] = queue.Queue(capacity)
        self._ids_lock = threading.Lock()
        self._next_id = 0
        self._failure: BaseException | None = None
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._thread = threading.Thread(target=self._run, name="history", daemon=True)
        self._thread.start()

    def new_id(self) -> int:
        """A fresh `op` or `poll_id`."""
        with self._ids_lock:
            self._next_id += 1
            return self._next_id

    def write(self, process: str, client: str, f: str, type_: str, **fields: Any) -> None:
        """Writes one line, stamped now unless `t_ns` is given; blocks while the queue is full.

        Raises ValueError for a field that is not a column of the history.
        """
        if self._failure is not None:
            raise HistoryError(f"{self.path} could not be written: {self._failure}")
        line: dict[str, Any] = {"process": process, "client": client, "f": f, "type": type_}
        line["t_ns"] = fields.pop("t_ns", None) or time.monotonic_ns()
        line.update((k, v) for k, v in fields.items() if v is not None)
        require_columns(line)
        self._lines.put(line)

    def flush(self) -> None:
        """Waits until all lines so far can be read; raises where any could not be written."""
        written = threading.Event()
        self._lines.put(written)
        written.wait()
        if self._failure is not None:
            raise HistoryError(f"{self.path} could not be written: {self._failure}")

    def close(self) -> None:
        """Waits until all lines are on disk; raises where any could not be written."""
        self._lines.put(None)
        self._thread.join()
        if self._failure is not None:
            raise HistoryError(f"{self.path} could not be written: {self._failure}")

    def _run(self) -> None:
        index = 0
        done = False
        while not done:
            batch = [self._lines.get()]
            while len(batch) < 1000:
                try:
                    batch.append(self._lines.get_nowait())
                except queue.Empty:
                    break
            done = None in batch
            out = bytearray()
            for line in batch:
                if isinstance(line, dict):
                    out += encode_line({**self._common, "index": index, **line})
                    index += 1
            try:
                if self._failure is None:  # else only drain the queue, so that no client hangs
                    write_whole(self._fd, out)
                    if done:
                        os.fsync(self._fd)
            except OSError as error:
                self._failure = error
            for event in batch:
                if isinstance(event, threading.Event):
                    event.set()
        os.close(self._fd)


def write_whole(fd: int, data: bytes | bytearray) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def encode_line(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


class LineLog:
    """faults.jsonl and witness.jsonl: few lines, each written at once."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def write(self, **fields: Any) -> None:
        write_whole(self._fd, encode_line(fields))

    def close(self) -> None:
        if self._fd >= 0:
            os.fsync(self._fd)
            os.close(self._fd)
            self._fd = -1


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a history (or of faults.jsonl, witness.jsonl); a torn last line is left out."""
    with path.open("rb") as file:
        for number, raw in enumerate(file):
            if not raw.endswith(b"\n"):
                return
            try:
                yield json.loads(raw)
            except ValueError as error:
                raise HistoryError(f"{path}, line {number + 1}: not JSON: {error}") from error
