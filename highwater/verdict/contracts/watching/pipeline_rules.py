"""One pipeline of a contract while it runs: K7 to K12 of docs/rules.md.  Pure.

The first output with an id answers the first input with that id, the second output the second, and
so on.  An output is judged GRACE_MS after it came, because its input may be read later; an input is
judged `within_s` after it came (`unseen`, if the contract names no time), and GRACE_MS more.
Entries older than the horizon are forgotten; inputs without an output, after AT_REST horizons.
"""

from __future__ import annotations

from bisect import insort
from heapq import heappop, heappush
from typing import Any, Final, NamedTuple

from highwater.verdict.contracts.contract_model import Pipeline
from highwater.verdict.contracts.watching.row import AT_REST, GRACE_MS, Row, alarm
from highwater.verdict.watching.alarm import Told

ID_SHOWN: Final = 60


class Input(NamedTuple):
    t_ms: int
    partition: int
    offset: int
    key: str | None
    time_ms: int | None
    txn: str | None


class Output(NamedTuple):
    t_ms: int
    partition: int
    offset: int
    time_ms: int | None


class Entry:
    """The inputs and outputs with one id."""

    __slots__ = ("inputs", "newest_ms", "outputs")

    def __init__(self) -> None:
        self.inputs: list[Input] = []
        self.outputs: list[Output] = []
        self.newest_ms = 0

    def __getstate__(self) -> tuple[Any, ...]:
        return ([tuple(i) for i in self.inputs], [tuple(o) for o in self.outputs], self.newest_ms)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        inputs, outputs, self.newest_ms = state
        self.inputs = [Input(*one) for one in inputs]
        self.outputs = [Output(*one) for one in outputs]


class PipelineRules:
    def __init__(
        self, pipeline: Pipeline, compacted: bool, unseen_ms: int, horizon_ms: int
    ) -> None:
        """`compacted`: whether the source is compacted, so that inputs may be gone rightly."""
        must = set(pipeline.must)
        self.pipeline, self.compacted = pipeline, compacted
        self.at_least = bool({"at least once", "exactly once"} & must)
        self.at_most = bool({"at most once", "exactly once"} & must)
        self.in_order, self.whole = "in order per key" in must, "transactions whole" in must
        self.wait_ms = (pipeline.within_ms or unseen_ms) + GRACE_MS
        self.horizon_ms = max(horizon_ms, self.wait_ms)
        self.told = Told()
        self.entries: dict[str, Entry] = {}
        self.waiting: list[tuple[int, str, Input]] = []
        """A heap of inputs, by the time when they are due."""
        self.settling: list[tuple[int, int, int, str, Output]] = []
        """A heap of outputs, by (due, partition, offset)."""
        self.ages: list[tuple[int, str]] = []
        """A heap of ids, by the time when they may be forgotten."""
        self.orders: dict[tuple[int, str, int], tuple[int, int]] = {}
        """(Partition, key, partition of the output) -> (offset of the input, when)."""
        self.transactions: dict[str, tuple[int, list[tuple[str, Input]]]] = {}
        """Transaction -> (when it is due, its inputs)."""
        self.trimmed = False

    def _entry(self, id_: str, at_ms: int) -> Entry:
        entry = self.entries.get(id_)
        if entry is None:
            entry = self.entries[id_] = Entry()
            heappush(self.ages, (at_ms + self.horizon_ms, id_))
        entry.newest_ms = max(entry.newest_ms, at_ms)
        return entry

    def input(self, row: Row, at_ms: int) -> None:
        if row.id is None:
            return
        one = Input(row.timestamp_ms or 0, *row[1:3], row.key, row.time_ms, row.txn)
        insort(self._entry(row.id, at_ms).inputs, one, key=_place)
        due_ms = at_ms + self.wait_ms
        if self.at_least:
            heappush(self.waiting, (due_ms, row.id, one))
        if self.whole and row.txn is not None:
            _, inputs = self.transactions.get(row.txn, (0, []))
            self.transactions[row.txn] = (due_ms, [*inputs, (row.id, one)])

    def output(self, row: Row, at_ms: int) -> None:
        if row.id is None:
            return
        one = Output(row.timestamp_ms or 0, *row[1:3], row.time_ms)
        insort(self._entry(row.id, at_ms).outputs, one, key=_place)
        heappush(self.settling, (at_ms + GRACE_MS, one.partition, one.offset, row.id, one))

    # --- what is due

    def due(self, clock_ms: int) -> None:
        settled = []
        while self.settling and self.settling[0][0] <= clock_ms:
            settled.append(heappop(self.settling))
        for _, _, _, id_, output in sorted(settled, key=lambda one: one[1:3]):
            self._settle(id_, output, clock_ms)
        while self.waiting and self.waiting[0][0] <= clock_ms:
            _, id_, one = heappop(self.waiting)
            if not self._answered(id_, one):
                detail = f"is not in {self.pipeline.target} (id {id_[:ID_SHOWN]})"
                self._tell("K7", self.pipeline.source, one, detail)
        for name in [name for name, (due, _) in self.transactions.items() if due <= clock_ms]:
            self._transaction(name, self.transactions.pop(name)[1])

    def _answered(self, id_: str, one: Input) -> bool:
        entry = self.entries.get(id_)
        return entry is None or entry.inputs.index(one) < len(entry.outputs)

    def _settle(self, id_: str, output: Output, clock_ms: int) -> None:
        entry, source, target = self.entries[id_], self.pipeline.source, self.pipeline.target
        nth = entry.outputs.index(output) + 1
        if not entry.inputs:
            if self.at_most and not self.compacted and not self.trimmed:
                within = f"of the last {self.horizon_ms / 1000:g} s has"
                detail = f"has id {id_[:ID_SHOWN]}, which no record of {source} {within}"
                self._tell("K9", target, output, detail)
            return
        if nth > len(entry.inputs):
            if self.at_most:
                number = f"is output number {nth} of id {id_[:ID_SHOWN]}"
                detail = f"{number}, of which {source} has {len(entry.inputs)}"
                self._tell("K8", target, output, detail)
            return
        one = entry.inputs[nth - 1]
        place = f"{source}-{one.partition} offset {one.offset}"
        within_ms = self.pipeline.within_ms
        if within_ms is not None and output.time_ms is not None and one.time_ms is not None:
            late = output.time_ms - one.time_ms
            if late > within_ms:
                self._tell("K10", target, output, f"is {late} ms behind its input, {place}")
        if self.in_order and one.key is not None:
            scope = (one.partition, one.key, output.partition)
            before = self.orders.get(scope)
            self.orders[scope] = (one.offset, clock_ms)
            if before is not None and before[0] > one.offset:
                detail = f"is the output of {place} (key {one.key}), and comes after that of"
                self._tell("K11", target, output, f"{detail} offset {before[0]}")

    def _transaction(self, name: str, inputs: list[tuple[str, Input]]) -> None:
        missing = [one for id_, one in inputs if not self._answered(id_, one)]
        if len(missing) == len(inputs):
            return
        there = f"where {len(inputs) - len(missing)} of the {len(inputs)} records of transaction"
        for one in missing:
            detail = f"is not in {self.pipeline.target}, {there} {name[:ID_SHOWN]} are"
            self._tell("K12", self.pipeline.source, one, detail)

    def _tell(self, rule: str, topic: str, one: Input | Output, detail: str) -> None:
        alarm(self.told, rule, (topic, one.partition, one.offset), detail, one.t_ms)

    # --- what is kept

    def forget(self, clock_ms: int) -> None:
        """Forgets everything older than the horizon."""
        rest = AT_REST * self.horizon_ms
        while self.ages and self.ages[0][0] <= clock_ms:
            _, id_ = heappop(self.ages)
            entry = self.entries[id_]
            whole = len(entry.outputs) >= len(entry.inputs)
            until = entry.newest_ms + (self.horizon_ms if whole else rest)
            if until > clock_ms:
                heappush(self.ages, (until if whole else clock_ms + self.horizon_ms, id_))
            else:
                del self.entries[id_]
        for scope in [s for s, (_, at_ms) in self.orders.items() if at_ms < clock_ms - rest]:
            del self.orders[scope]

    def state(self) -> tuple[Any, ...]:
        return (
            self.told.counts, self.entries, self.waiting, self.settling, self.ages, self.orders,
            self.transactions, self.trimmed,
        )  # fmt: skip

    def restore(self, state: tuple[Any, ...]) -> None:
        counts, self.entries, self.waiting, self.settling, self.ages, self.orders, *rest = state
        self.told = Told(counts)
        self.transactions, self.trimmed = rest


def _place(one: Input | Output) -> tuple[int, int, int]:
    return one[:3]
