"""One topic of a contract while it is written: K1 to K5 of docs/rules.md.  Pure.

A missing number may still come, so a gap is reported when both its neighbours are `unseen` old.
For each count (of a key, a partition, the topic) the numbers within the horizon are kept, and
always the highest one; a number below them is too old to be judged.  `at_ms` is when a record came:
its time, but not before the machine's clock.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import Any, Final

from highwater.verdict.contracts.contract_model import Topic
from highwater.verdict.contracts.watching.row import AT_REST, Row, alarm, tell
from highwater.verdict.watching.alarm import MOST_OF_A_RULE, Told

MOST: Final = 1_000_000
"""The most numbers of a count, whatever the horizon."""
COLUMNS: Final = {"time": "time_ms", "transaction": "txn"}


class Numbers:
    """The distinct numbers of one count, rising, and the place where each was first."""

    def __init__(self) -> None:
        self.numbers, self.partitions = array("q"), array("i")
        self.offsets, self.times = array("q"), array("q")
        self.open: set[int] = set()
        """Numbers after which one is missing that was not reported yet."""
        self.forgot: int | None = None
        """The highest number that was forgotten."""

    def add(self, number: int, partition: int, offset: int, at_ms: int) -> tuple[int, int] | None:
        """Adds a number; returns the (partition, offset) that has it already, if any."""
        at = bisect_left(self.numbers, number)
        if at < len(self.numbers) and self.numbers[at] == number:
            return self.partitions[at], self.offsets[at]
        if self.forgot is not None and number <= self.forgot:
            return None
        self.numbers.insert(at, number)
        self.partitions.insert(at, partition)
        self.offsets.insert(at, offset)
        self.times.insert(at, at_ms)
        if at and number - self.numbers[at - 1] == 1:
            self.open.discard(self.numbers[at - 1])
        elif at:
            self.open.add(self.numbers[at - 1])
        if at + 1 < len(self.numbers) and self.numbers[at + 1] - number > 1:
            self.open.add(number)
        return None

    def gaps(self, before_ms: int) -> list[tuple[int, int]]:
        """The indexes of each gap's two neighbours, if both are older than `before_ms`; each gap is
        returned once."""
        found = []
        for number in sorted(self.open):
            at = bisect_left(self.numbers, number)
            if max(self.times[at], self.times[at + 1]) <= before_ms:
                found.append((at, at + 1))
                self.open.discard(number)
        return found

    def forget(self, before_ms: int) -> None:
        count, last = 0, len(self.numbers) - 1
        while count < last and (
            len(self.numbers) - count > MOST
            or (self.times[count] < before_ms and self.numbers[count] not in self.open)
        ):
            count += 1
        if count:
            self.open.difference_update(self.numbers[:count])
            self.forgot = self.numbers[count - 1]
            for column in (self.numbers, self.partitions, self.offsets, self.times):
                del column[:count]

    @property
    def newest_ms(self) -> int:
        return max(self.times)


class TopicRules:
    def __init__(self, topic: Topic, unseen_ms: int, horizon_ms: int) -> None:
        self.topic = topic
        self.unseen_ms, self.horizon_ms = unseen_ms, horizon_ms
        self.told = Told()
        self.numbered = bool({"no gap", "no repeat", "order per key"} & set(topic.must))
        self.present: set[str] = set()
        """Fields that some record has: one that no record has makes the verdict void, not invalid.
        """
        self.unlike: list[Row] = []
        """Records without a field, which wait until some record has it."""
        self.counts: dict[str, Numbers] = {}
        self.orders: dict[tuple[int, str], tuple[int, int, int]] = {}
        """(Partition, key) -> (number, offset, when) of the last record."""
        self.clocks: dict[tuple[int, str], tuple[int, int, int]] = {}
        """(Partition, key) -> (time, offset, when) of the last record."""

    def record(self, row: Row, at_ms: int) -> None:
        self._alike(row)
        if self.numbered and row.sequence is not None:
            self._number(row, row.sequence, at_ms)
        if "monotonic time" in self.topic.must and row.time_ms is not None:
            self._time(row, row.time_ms, at_ms)

    def _alike(self, row: Row) -> None:
        for name in self.topic.looked_for:
            if name not in self.present and getattr(row, COLUMNS.get(name, name)) is not None:
                self.present.add(name)
        if row.wrong_field is not None and len(self.unlike) < MOST_OF_A_RULE:
            self.unlike.append(row)
        if not self.unlike:
            return
        for one in self.unlike:
            if one.wrong_field in self.present:
                tell(self.told, "K1", one, one.wrong or "")
        self.unlike = [one for one in self.unlike if one.wrong_field not in self.present]

    def _number(self, row: Row, number: int, at_ms: int) -> None:
        scopes = {"key": row.key, "partition": str(row.partition), "topic": ""}
        scope = scopes[self.topic.per["sequence"]]
        if scope is None:
            return
        numbers = self.counts.get(scope) or self.counts.setdefault(scope, Numbers())
        first = numbers.add(number, row.partition, row.offset, at_ms)
        if first is not None:
            if "no repeat" in self.topic.must:
                place = f"{row.topic}-{first[0]} offset {first[1]}"
                detail = f"has number {number}{self._whose(scope)}, which {place} has already"
                tell(self.told, "K3", row, detail)
            return
        if "order per key" not in self.topic.must or row.key is None:
            return
        before = self.orders.get((row.partition, row.key))
        self.orders[row.partition, row.key] = (number, row.offset, at_ms)
        if before is not None and before[0] > number:
            behind = f"comes after {before[0]} (offset {before[1]})"
            tell(self.told, "K4", row, f"has number {number} of key {row.key}, and {behind}")

    def _time(self, row: Row, time_ms: int, at_ms: int) -> None:
        scope = row.key if self.topic.per["time"] == "key" else ""
        if scope is None:
            return
        before = self.clocks.get((row.partition, scope))
        self.clocks[row.partition, scope] = (time_ms, row.offset, at_ms)
        if before is not None and before[0] > time_ms:
            older = f"is {before[0] - time_ms} ms older than offset {before[1]}"
            tell(self.told, "K5", row, f"{older}, which stands in front of it")

    def due(self, clock_ms: int) -> None:
        """Reports the gaps that are old enough."""
        if "no gap" not in self.topic.must:
            return
        for scope, numbers in self.counts.items():
            if not numbers.open:
                continue
            for at, after in numbers.gaps(clock_ms - self.unseen_ms):
                self._gap(scope, numbers, at, after)

    def _gap(self, scope: str, of: Numbers, at: int, after: int) -> None:
        partition, offset = of.partitions[at], of.offsets[at]
        next_place = of.partitions[after], of.offsets[after]
        if self.topic.compacted and next_place != (partition, offset + 1):
            return  # the records between may be gone rightly
        name = self.topic.name
        following = f"{name}-{next_place[0]} offset {next_place[1]}"
        detail = f"has number {of.numbers[at]}{self._whose(scope)}, and the next one is"
        detail = f"{detail} {of.numbers[after]} ({following})"
        alarm(self.told, "K2", (name, partition, offset), detail, of.times[after])

    def _whose(self, scope: str) -> str:
        return f" of key {scope}" if self.topic.per["sequence"] == "key" else ""

    def forget(self, clock_ms: int) -> None:
        """Forgets everything older than the horizon."""
        rest = clock_ms - AT_REST * self.horizon_ms
        for scope, numbers in list(self.counts.items()):
            numbers.forget(clock_ms - self.horizon_ms)
            if not numbers.open and numbers.newest_ms < rest:
                del self.counts[scope]
        for kept in (self.orders, self.clocks):
            for place in [place for place, (*_, at_ms) in kept.items() if at_ms < rest]:
                del kept[place]

    def state(self) -> tuple[Any, ...]:
        return (
            self.told.counts, self.present, self.unlike, self.counts, self.orders, self.clocks
        )  # fmt: skip

    def restore(self, state: tuple[Any, ...]) -> None:
        counts, self.present, self.unlike, self.counts, self.orders, self.clocks = state
        self.told = Told(counts)
