"""One replica's log on a machine's disk, read from outside the code under test.

A `ReplicaMirror` follows the segments of one partition on one simulated disk, whether a broker runs
there or not.  Given the names of changed files, it parses the bytes appended since its last look,
and notices when something is gone.  It costs as much as the change, not as the log: only a change
other than an append makes it read the whole folder again.  It has a parser of its own, because the
broker's parser would hide its own faults.
"""

from __future__ import annotations

import posixpath
from bisect import bisect_right
from dataclasses import dataclass, field
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from highwater.broker.log.segment import Segment
    from highwater.world.sim.disk import Folder, SimDisk
    from highwater.world.sim.inode import Inode

_HEAD = Struct(">qiibIhi8xqqhi")
_RECORDS_AT = 61
_TIME_ENTRY = Struct(">qi")
NEWER = "newer-than-offline-copies"
"""The mark of a log that was made while an older copy was offline (`log/dirs/stale_copies`)."""
_TRANSACTIONAL, _CONTROL = 1 << 4, 1 << 5


class Batch(NamedTuple):
    """The fields by which two batches are the same (offsets, leader epoch, CRC and the records'
    bytes), and their producer.
    """

    base: int
    last: int
    epoch: int
    crc: int
    records: bytes
    attributes: int = 0
    producer_id: int = -1
    max_timestamp: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1

    @property
    def control(self) -> bool:
        return bool(self.attributes & _CONTROL)

    @property
    def transactional(self) -> bool:
        return bool(self.attributes & _TRANSACTIONAL)

    @property
    def marker(self) -> bool:
        """Whether it ends a transaction."""
        return self.transactional and bool(self.attributes & _CONTROL)

    @property
    def aborts(self) -> bool:
        """Whether a marker aborts: its record's key is a version and a kind, 0 for an abort."""
        at = 0
        for name in ("length", "attributes", "timestamp", "offset", "key length"):
            while name != "attributes" and self.records[at] & 0x80:
                at += 1  # a number of more than one byte
            at += 1
        return self.records[at + 2 : at + 4] == b"\0\0"

    @property
    def size(self) -> int:
        """The size in bytes."""
        return len(self.records) + _RECORDS_AT

    def same(self, other: Batch) -> bool:
        return self is other or self[:5] == other[:5]

    def __str__(self) -> str:
        return f"{self.base}-{self.last} of epoch {self.epoch} (CRC {self.crc:08x})"


def parse(data: bytes | bytearray, position: int = 0) -> tuple[list[Batch], int]:
    """The whole batches from `position` on, and the position after them."""
    found: list[Batch] = []
    while position + _RECORDS_AT <= len(data):
        head = _HEAD.unpack_from(data, position)
        base, length, epoch, _, crc, attributes, delta, newest, *producer = head
        end = position + 12 + length
        if length < _RECORDS_AT - 12 or end > len(data):
            break
        records = bytes(data[position + _RECORDS_AT : end])
        id_, *sequence = producer
        found.append(
            Batch(base, base + delta, epoch, crc, records, attributes, id_, newest, *sequence)
        )
        position = end
    return found, position


@dataclass(slots=True)
class _Segment:
    inode: Inode
    cuts: int
    parsed: int = 0
    batches: list[Batch] = field(default_factory=list)


class ReplicaMirror:
    """One replica's log.  `refresh` returns the batches that are gone."""

    def __init__(self, disk: SimDisk, path: str, *others: str) -> None:
        """`others`: its possible folders in other log directories."""
        self.disk = disk
        self.path = path
        self.paths = (path, *others)
        self.batches: list[Batch] = []
        self.exists = False
        self.made_anew = False
        """Whether the last look found a log made while the former one was offline."""
        self.moved = False
        """Whether the last look found the log in another directory."""
        self.start = 0
        self.end = 0
        """The log end offset."""
        self._folder: Folder = {}
        self._segments: dict[str, _Segment] = {}
        self._last = ""
        self._last_base = 0
        self._bases: list[int] = []

    def refresh(self, changed: Iterable[str] | None = None) -> list[Batch]:
        """Reads what is new in these files (None: in all); returns the batches that are gone,
        except those gone from the front (deleted segments).
        """
        place = self._place()
        self.moved = place != self.path
        self.made_anew = self.moved and self._is_newer(place)
        if changed is not None and not self.made_anew:
            logs = sorted(name for name in changed if name.endswith(".log"))
            if all(self._grew(name) for name in logs):
                return []
        self.path = place
        folder = self.disk.find(self.path)
        self.exists = isinstance(folder, dict)
        self._folder = folder if isinstance(folder, dict) else {}
        return self._rebuild({n: self._folder[n] for n in sorted(self._folder) if n[-4:] == ".log"})

    def _place(self) -> str:
        """The log's folder.  Of two, it is the newer one, not that in a directory that failed.  If
        there is none, it is a copy that was to replace the log when a directory failed."""
        there = [path for path in self.paths if isinstance(self.disk.find(path), dict)]
        if len(there) > 1:
            return next(filter(self._is_newer, there), there[0])
        return there[0] if there else self._future() or self.path

    def _is_newer(self, path: str) -> bool:
        return self.disk.find(f"{path}/{NEWER}") is not None

    def _future(self) -> str | None:
        for path in self.paths if len(self.paths) > 1 else ():
            folder, _, name = path.rpartition("/")
            names = self.disk.find(folder)
            for other in names if isinstance(names, dict) else ():
                if other.startswith(f"{name}.") and other.endswith("-future"):
                    return f"{folder}/{other}"
        return None

    def _grew(self, name: str) -> bool:
        """Takes in an append to the last segment, or a new segment after it; False where
        something else has happened."""
        node = self._folder.get(name)
        known = self._segments.get(name)
        if known is None:
            if node is None:
                return True
            if not self._segments or name < self._last:
                return False
            assert not isinstance(node, dict)
            known = self._segments[name] = _Segment(node, node.cuts)
            self._last, self._last_base = name, int(name[:20])
            self.end = max(self.end, self._last_base)
        elif known.inode is not node or node.cuts != known.cuts or name != self._last:
            return False
        self._parse_tail(known)
        return True

    def _parse_tail(self, segment: _Segment) -> None:
        if len(segment.inode.data) > segment.parsed:
            new, segment.parsed = parse(segment.inode.data, segment.parsed)
            segment.batches += new
            self.batches += new
            self._bases += [batch.base for batch in new]
            if new:
                self.end = max(new[-1].last + 1, self._last_base)

    def _rebuild(self, nodes: Mapping[str, object]) -> list[Batch]:
        segments: dict[str, _Segment] = {}
        batches: list[Batch] = []
        for name, node in nodes.items():
            known = self._segments.get(name)
            if known is None or known.inode is not node or known.cuts != known.inode.cuts:
                known = _Segment(node, node.cuts)  # type: ignore[arg-type,attr-defined]
            new, known.parsed = parse(known.inode.data, known.parsed)
            known.batches += new
            segments[name] = known
            batches += known.batches
        before = self.batches
        self._segments, self.batches = segments, batches
        self._last = next(reversed(segments), "")
        self._bases = [batch.base for batch in batches]
        self._last_base = int(self._last[:20]) if segments else 0
        self.end = max(batches[-1].last + 1 if batches else 0, self._last_base)
        self.start = int(next(iter(segments))[:20]) if segments else 0
        return self._gone(before, batches)

    def _gone(self, before: list[Batch], after: list[Batch]) -> list[Batch]:
        first = after[0].base if after else self.start
        old = before[bisect_right([b.base for b in before], first - 1) :]
        if old:  # a copy may begin lower, with segments below its log start
            after = after[bisect_right([b.base for b in after], old[0].base - 1) :]
        kept = 0
        while kept < min(len(old), len(after)) and old[kept].same(after[kept]):
            kept += 1
        return old[kept:]

    @property
    def size(self) -> int:
        """The size of the log's batches in bytes."""
        return sum(batch.size for batch in self.batches)

    def in_segment(self, path: str) -> list[Batch]:
        """The batches of the segment whose `.log` has this path."""
        held = self._segments.get(posixpath.basename(path))
        return held.batches if held else []

    def misdated(self, segment: Segment) -> str | None:
        """What is wrong with the largest timestamp that a broker has for a segment, or None."""
        held = self.in_segment(segment.file.path)
        newest = max((batch.max_timestamp for batch in held), default=-1)
        private: Any = segment
        known = private._max_timestamp if private._max_known else self._last_time(segment)
        if known == newest:
            return None
        return (
            f"takes {known} for the largest timestamp from offset {segment.base_offset} on, which"
            f" is {newest}"
        )

    def _last_time(self, segment: Segment) -> int:
        """The last timestamp in the segment's time index file; -1 if there is none."""
        node = self.disk.find(segment.file.path.removesuffix(".log") + ".timeindex")
        last = 0  # zeros are padding
        if node is not None and not isinstance(node, dict):
            data = bytes(node.data[: len(node.data) // _TIME_ENTRY.size * _TIME_ENTRY.size])
            for time, _ in _TIME_ENTRY.iter_unpack(data):
                if time <= last:
                    break
                last = time
        return last or -1

    def index_from(self, offset: int) -> int:
        """The first batch that ends at or after the offset."""
        at = bisect_right(self._bases, offset) - 1
        return at if at >= 0 and self.batches[at].last >= offset else at + 1

    def batch_at(self, offset: int) -> Batch | None:
        at = self.index_from(offset)
        if at < len(self.batches) and self.batches[at].base <= offset:
            return self.batches[at]
        return None
