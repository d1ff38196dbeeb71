"""What a machine's disk holds of one replica, read from outside the code under test.

A `ReplicaMirror` follows the segments of one partition on one simulated disk, whether a broker runs
there or not.  It parses what was appended since it last looked, and notices when something that was
there is gone; its cost is that of the change, not of the log.  The parser is its own: checking the
code with the code's parser would hide a fault of the parser.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from highwater.common.world.sim.disk import SimDisk, _Inode

_HEAD = Struct(">qiibIhi")
_RECORDS_AT = 61


class Batch(NamedTuple):
    """What makes two batches the same (offsets, leader epoch, CRC), and the records' bytes."""

    base: int
    last: int
    epoch: int
    crc: int
    records: bytes

    def same(self, other: Batch) -> bool:
        return self[:4] == other[:4]

    def __str__(self) -> str:
        return f"{self.base}-{self.last} of epoch {self.epoch} (CRC {self.crc:08x})"


def parse(data: bytes | bytearray, position: int = 0) -> tuple[list[Batch], int]:
    """The whole batches from `position` on, and where they end."""
    found: list[Batch] = []
    while position + _RECORDS_AT <= len(data):
        base, length, epoch, _, crc, _, delta = _HEAD.unpack_from(data, position)
        end = position + 12 + length
        if length < _RECORDS_AT - 12 or end > len(data):
            break
        records = bytes(data[position + _RECORDS_AT : end])
        found.append(Batch(base, base + delta, epoch, crc, records))
        position = end
    return found, position


@dataclass(slots=True)
class _Segment:
    inode: _Inode
    cuts: int
    parsed: int = 0
    batches: list[Batch] = field(default_factory=list)


class ReplicaMirror:
    """One replica's log.  `refresh` tells what is no longer there."""

    def __init__(self, disk: SimDisk, path: str) -> None:
        self.disk = disk
        self.path = path
        self.batches: list[Batch] = []
        self.exists = False
        self.start = 0
        self.end = 0
        """The log end offset."""
        self._segments: dict[str, _Segment] = {}
        self._bases: list[int] = []

    def refresh(self) -> list[Batch]:
        """Reads what is new; gives the batches that were there and are not any more, but for those
        that went at the front (deleted segments)."""
        folder = self.disk.find(self.path)
        self.exists = isinstance(folder, dict)
        names = sorted(n for n in folder if n.endswith(".log")) if isinstance(folder, dict) else []
        nodes = {name: folder[name] for name in names} if isinstance(folder, dict) else {}
        grown = self._same_but_longer(nodes)
        if grown is not None:
            self._parse_tail(grown)
            return []
        return self._rebuild(nodes)

    def _same_but_longer(self, nodes: Mapping[str, object]) -> _Segment | None:
        """The last segment, where nothing else can have changed."""
        if len(nodes) != len(self._segments) or not nodes:
            return None
        last = None
        for name, node in nodes.items():
            last = self._segments.get(name)
            if last is None or last.inode is not node or last.inode.cuts != last.cuts:
                return None
        return last

    def _parse_tail(self, segment: _Segment) -> None:
        if len(segment.inode.data) > segment.parsed:
            new, segment.parsed = parse(segment.inode.data, segment.parsed)
            segment.batches += new
            self.batches += new
            self._bases += [batch.base for batch in new]
            if new:
                self.end = new[-1].last + 1

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
        self._bases = [batch.base for batch in batches]
        last_base = int(next(reversed(segments))[:20]) if segments else 0
        self.end = max(batches[-1].last + 1 if batches else 0, last_base)
        self.start = int(next(iter(segments))[:20]) if segments else 0
        return self._gone(before, batches)

    def _gone(self, before: list[Batch], after: list[Batch]) -> list[Batch]:
        first = after[0].base if after else self.start
        old = before[bisect_right([b.base for b in before], first - 1) :]
        kept = 0
        while kept < min(len(old), len(after)) and old[kept].same(after[kept]):
            kept += 1
        return old[kept:]

    def index_from(self, offset: int) -> int:
        """The first batch that ends at or after the offset."""
        at = bisect_right(self._bases, offset) - 1
        return at if at >= 0 and self.batches[at].last >= offset else at + 1

    def batch_at(self, offset: int) -> Batch | None:
        at = self.index_from(offset)
        if at < len(self.batches) and self.batches[at].base <= offset:
            return self.batches[at]
        return None
