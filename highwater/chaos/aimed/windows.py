"""Which inputs of an application would suffer from a death now.

    ahead    a group has committed past the input, and its output is neither shown nor hidden: a
             death loses it
    behind   its output is stored, and no group has committed past it: a death repeats it, unless
             the output goes with an aborted transaction

An output is *stored* once read_uncommitted has seen it, and *shown* once read_committed has.  It is
*hidden* while it is stored and read_committed has not come so far: some transaction that is open
before it holds back the last stable offset, and nobody knows yet whether the output will be shown.
Reports may come late and in any order: an output may be seen before the delivery report of its own
input.  Pure.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

AHEAD, BEHIND = "ahead", "behind"
WINDOWS = (AHEAD, BEHIND)


@dataclass(slots=True)
class _Partition:
    """One partition of the input."""

    inputs: dict[int, str] = field(default_factory=dict)
    """Offset -> id."""
    committed: int = 0
    """The highest offset among those that the groups have committed."""
    groups: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Output:
    """One partition of the output."""

    passed: int = 0
    """read_committed has come to this offset: each record below it is shown, or was aborted."""
    hidden: deque[tuple[int, str]] = field(default_factory=deque)
    """The (offset, id)s of outputs at or above `passed`, in the order of offsets."""


class Windows:
    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._partitions: defaultdict[int, _Partition] = defaultdict(_Partition)
        self._places: dict[str, tuple[int, int]] = {}
        self._stored: set[str] = set()
        self._shown: set[str] = set()
        self._hidden: Counter[str] = Counter()
        """Id -> how many of its outputs are hidden."""
        self._outputs: defaultdict[int, _Output] = defaultdict(_Output)
        self._open: dict[str, dict[str, float]] = {window: {} for window in WINDOWS}
        """Window -> the ids in it -> since when."""

    def sent(self, id_: str, partition: int, offset: int) -> None:
        """An input was acknowledged."""
        self._partitions[partition].inputs[offset] = id_
        self._places[id_] = partition, offset
        self._sort(id_)

    def stored(self, id_: str, partition: int, offset: int) -> None:
        """read_uncommitted has seen this output."""
        of = self._outputs[partition]
        self._stored.add(id_)
        if offset >= of.passed:
            of.hidden.append((offset, id_))
            self._hidden[id_] += 1
        self._sort(id_)

    def shown(self, id_: str, partition: int, offset: int) -> None:
        """read_committed has seen this output."""
        self._stored.add(id_)
        self._shown.add(id_)
        self._sort(id_)
        self.passed(partition, offset + 1)

    def passed(self, partition: int, offset: int) -> None:
        """read_committed has come to this offset of the output."""
        of = self._outputs[partition]
        of.passed = max(of.passed, offset)
        while of.hidden and of.hidden[0][0] < of.passed:
            _, id_ = of.hidden.popleft()
            self._hidden[id_] -= 1
            self._sort(id_)

    def committed(self, group: str, partition: int, offset: int | None) -> None:
        """A group has committed this offset in a partition of the input; None: its offset is gone
        (a tombstone)."""
        of = self._partitions[partition]
        if offset is None:
            of.groups.pop(group, None)
        else:
            of.groups[group] = offset
        before, of.committed = of.committed, max(of.groups.values(), default=0)
        for at in range(*sorted((before, of.committed))):
            if at in of.inputs:
                self._sort(of.inputs[at])

    def _sort(self, id_: str) -> None:
        place = self._places.get(id_)
        if place is None:
            return
        past = place[1] < self._partitions[place[0]].committed
        self._put(AHEAD, id_, past and id_ not in self._shown and not self._hidden[id_])
        self._put(BEHIND, id_, not past and id_ in self._stored)

    def _put(self, window: str, id_: str, inside: bool) -> None:
        within = self._open[window]
        if inside:
            within.setdefault(id_, self._clock())
        else:
            within.pop(id_, None)

    def size(self, window: str) -> int:
        return len(self._open[window])

    def within(
        self, window: str, partitions: Collection[int], after: float = -math.inf
    ) -> dict[str, float]:
        """The ids in a window that belong to these partitions of the input and came into the window
        later than `after` -> when they did."""
        return {
            id_: since
            for id_, since in self._open[window].items()
            if since > after and self._places[id_][0] in partitions
        }

    def still(self, window: str, ids: Collection[str]) -> set[str]:
        """Those of these ids that are in a window now."""
        return self._open[window].keys() & set(ids)

    def only_stored(self, ids: Collection[str]) -> int:
        """How many of these outputs are in a transaction that is open or was aborted."""
        return sum(id_ in self._stored and id_ not in self._shown for id_ in ids)

    def place(self, id_: str) -> tuple[int, int] | None:
        """Partition and offset of an input."""
        return self._places.get(id_)
