"""Checks the offsets in answers of Fetch and ListOffsets: HW, LSO, log start, latest, earliest.

A broker makes an answer at some moment between its request and its arrival.  A client's `Question`
notes what the broker knows when the request is sent; an answer without an error is compared when
it arrives.

* **If the broker led throughout**, in one life and without a break, what it knows only rises.  So
  each offset in the answer lies between those of the two moments: R3 for the HW and the log start,
  T7 for the LSO.  The log start is never below the first segment that the broker's disk had when
  the request was sent.
* **In any case** the HW is one that some leader had: never above the committed log (R3).  A leader
  that was replaced and does not know it may answer with what it knew: less, but no more.  Only if
  a part of the committed log was given up, such a leader may still count what its successor lost,
  and more that its own followers fetch.
* The log start is at most the HW (R3), and the LSO as well (T7).
* The LSO is the first offset of a transaction that is open below the HW of the same answer, by the
  committed log; where a part of that was given up, by the leader's own disk (T7).  The latest
  offset under read_committed is such an LSO, for a HW of the time in between.
* A partition that an incremental fetch session leaves out of its answer has no news (KIP-227): the
  last answer of the session that had it is held to the same rules, as if it had been repeated.
* A lookup by time finds an offset between log start and HW (R3).  A lookup of the largest timestamp
  may find a record below the log start whose segment is still there, as in Kafka, where
  `UnifiedLog.fetchOffsetByTimestamp` looks only at the segments.

`Book.seen` counts what was compared.  The committed batches of a compacted topic are not kept, so
its HW and LSO are compared with what brokers know, and with the highest HW.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from highwater.simulation.rules.stable_offsets import StableOffsets

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from highwater.broker.replica.partition import Partition
    from highwater.kafka.types import TopicPartition
    from highwater.kafka.wire.fetch import FetchedPartition
    from highwater.simulation.rules.agreed_log import PartitionTruth
    from highwater.simulation.rules.findings import Book
    from highwater.simulation.rules.mirror import Batch

NOWHERE = -1
"""The offset of a lookup by time that found nothing."""


class Knowledge(NamedTuple):
    """What a leader knows at one moment, and the base of the first segment on its disk."""

    partition: Partition
    generation: int
    hw: int
    lso: int
    log_start: int
    first_segment: int

    def goes_on(self, later: Knowledge) -> bool:
        """Whether the broker has led without a break from this moment to the later one."""
        return self.partition is later.partition and self.generation == later.generation


class Answers:
    """Compares the answers of one run."""

    def __init__(self, book: Book) -> None:
        self.book = book
        self._stable: dict[tuple[TopicPartition, int], StableOffsets] = {}

    def question(self, broker: int, tps: Iterable[TopicPartition]) -> Question:
        """Notes what a broker knows; to be called when a request is about to be sent to it."""
        return _Compared(self, broker, tps)

    def known(self, broker: int, tp: TopicPartition) -> Knowledge | None:
        """What a broker knows of a partition now; None if it does not run, or does not lead."""
        partition = self.book.tables.get(broker, {}).get(tp)
        truth = self.book.partitions.get(tp)
        replica = truth.replicas.get(broker) if truth is not None else None
        if partition is None or replica is None or not partition.is_leader or partition.log is None:
            return None
        return Knowledge(
            partition,
            partition.generation,
            partition.high_watermark,
            partition.last_stable_offset,
            partition.log.log_start_offset,
            replica.mirror.start,
        )

    def stable(self, truth: PartitionTruth, broker: int | None) -> StableOffsets | None:
        """The LSOs by the committed log, or by this leader's disk if a part of the log was given
        up; None if neither is known."""
        if truth.compacted or (truth.given_up and broker is None):
            return None
        batches: Sequence[Batch] = truth.committed
        who = -1
        if truth.given_up and broker is not None:
            who, batches = broker, truth.replicas[broker].mirror.batches
        found = self._stable.get((truth.tp, who))
        if found is None or found.batches is not batches:
            found = self._stable[truth.tp, who] = StableOffsets(batches)
        return found


class _Moments(NamedTuple):
    """A partition when the request was sent and when the answer came; `before` is None unless the
    broker has led it without a break."""

    truth: PartitionTruth
    before: Knowledge | None
    after: Knowledge | None


class Question:
    """One request to one broker; its caller reports the answer here.  This class ignores the
    answer, for clients that no rules watch."""

    def fetched(self, got: FetchedPartition) -> None:
        """A partition of a Fetch answer, without an error."""

    def left_out(self, told: FetchedPartition) -> None:
        """An incremental answer leaves this partition out; `told` is what the last answer that had
        the partition said."""

    def latest(self, tp: TopicPartition, offset: int, *, committed: bool = False) -> None:
        """The latest offset of ListOffsets; `committed` under read_committed."""

    def earliest(self, tp: TopicPartition, offset: int) -> None:
        """The earliest offset of ListOffsets."""

    def dated(self, tp: TopicPartition, offset: int, *, largest: bool = False) -> None:
        """The offset that ListOffsets found for a timestamp; `largest`: for the largest one."""


class _Compared(Question):
    def __init__(self, answers: Answers, broker: int, tps: Iterable[TopicPartition]) -> None:
        self._answers = answers
        self._book = answers.book
        self._broker = broker
        self._before = {
            tp: (self._book.partitions.get(tp), answers.known(broker, tp)) for tp in tps
        }

    def _moments(self, tp: TopicPartition) -> _Moments | None:
        """None where the topic has been deleted since."""
        truth, before = self._before[tp]
        if truth is None or truth is not self._book.partitions.get(tp):
            return None
        after = self._answers.known(self._broker, tp)
        led = before is not None and after is not None and before.goes_on(after)
        return _Moments(truth, before, after) if led else _Moments(truth, None, None)

    # -- what was told --------------------------------------------------------------------------

    def fetched(self, got: FetchedPartition) -> None:
        self._told(got, "an answer to Fetch has")

    def left_out(self, told: FetchedPartition) -> None:
        self._book.seen["answers: left out by a session"] += 1
        self._told(told, "a session leaves out, having told")

    def _told(self, got: FetchedPartition, how: str) -> None:
        tp, hw, lso, log_start = got.tp, *got[2:5]
        moments = self._moments(tp)
        if moments is None:
            return
        self._hw(moments, hw, f"{how} the HW")
        self._log_start(moments, log_start, f"{how} the log start")
        if log_start > hw:
            self._broken("R3", tp, f"{how} the HW {hw}, and the log start {log_start}")
        if lso < log_start <= hw:
            self._broken("T7", tp, f"{how} the LSO {lso}, and the log start {log_start}")
        self._lso(moments, hw, lso, log_start, f"{how} the LSO")

    def latest(self, tp: TopicPartition, offset: int, *, committed: bool = False) -> None:
        moments = self._moments(tp)
        if moments is None:
            return
        if committed:
            self._latest_stable(moments, offset)
        else:
            self._hw(moments, offset, "ListOffsets has the latest offset")

    def earliest(self, tp: TopicPartition, offset: int) -> None:
        moments = self._moments(tp)
        if moments is not None:
            self._log_start(moments, offset, "ListOffsets has the earliest offset")

    def dated(self, tp: TopicPartition, offset: int, *, largest: bool = False) -> None:
        moments = self._moments(tp)
        if moments is None or offset == NOWHERE:
            return
        self._not_beyond(moments.truth, offset + 1, "a lookup by time has the end")
        self._book.seen["answers: by time"] += 1
        if moments.before is None or moments.after is None:
            return
        first = moments.before.first_segment if largest else moments.before.log_start
        end = moments.after.hw
        if not first <= offset < end:
            self._broken(
                "R3", tp, f"a lookup by time finds {offset}, and the log has {first} to {end}"
            )

    # -- the rules ------------------------------------------------------------------------------

    def _hw(self, moments: _Moments, hw: int, what: str) -> None:
        self._book.seen["answers: HW"] += 1
        self._not_beyond(moments.truth, hw, what)
        if moments.before is not None and moments.after is not None:
            self._within("R3", moments, what, hw, moments.before.hw, moments.after.hw)

    def _not_beyond(self, truth: PartitionTruth, hw: int, what: str) -> None:
        """R3: no client learns of a HW above what was ever committed."""
        end = max(truth.end, truth.exposed)
        if hw > end and not truth.given_up:
            self._broken("R3", truth.tp, f"{what} {hw}, and only {end} was ever committed")

    def _log_start(self, moments: _Moments, offset: int, what: str) -> None:
        self._book.seen["answers: log start"] += 1
        self._not_beyond(moments.truth, offset, what)
        if moments.before is not None and moments.after is not None:
            least = max(moments.before.log_start, moments.before.first_segment)
            self._within("R3", moments, what, offset, least, moments.after.log_start)

    def _lso(self, moments: _Moments, hw: int, lso: int, log_start: int, what: str) -> None:
        truth, before, after = moments
        self._book.seen["answers: LSO"] += 1
        if lso > hw:
            self._broken("T7", truth.tp, f"{what} {lso}, above its HW {hw}")
        if before is not None and after is not None:
            self._within("T7", moments, what, lso, before.lso, after.lso)
        stable = self._answers.stable(truth, self._broker if before is not None else None)
        if stable is None or (hw > truth.end and not truth.given_up):
            return
        self._book.seen["answers: LSO by the log"] += 1
        expected = stable.trimmed(hw, log_start) if log_start <= hw else {stable.at(hw)}
        if lso not in expected:
            self._broken("T7", truth.tp, f"{what} {lso}; below its HW {hw} the log has {expected}")

    def _latest_stable(self, moments: _Moments, offset: int) -> None:
        truth, before, after = moments
        what = "ListOffsets under read_committed has the latest offset"
        self._book.seen["answers: latest LSO"] += 1
        self._not_beyond(truth, offset, what)
        least, most = 0, truth.end
        if before is not None and after is not None:
            self._within("T7", moments, what, offset, before.lso, after.lso)
            least, most = before.hw, after.hw
        stable = self._answers.stable(truth, self._broker if before is not None else None)
        if before is None and truth.tp.topic in self._book.shortened:
            return  # where its log began is not known
        if before is not None and after is not None and after.log_start >= offset > 0:
            return  # the first record of an open transaction is deleted, and `_within` has compared
        if stable is None:
            return
        possible, begin = stable.between(least, most), after.log_start if after is not None else 0
        if begin and before is not None and before.lso == stable.at(before.hw) < before.hw:
            possible = [max(lso, begin) for lso in possible] + possible  # it knows who is open
        elif begin:
            possible += stable.between(least, most, begin)
        if offset not in possible:
            self._broken(
                "T7", truth.tp, f"{what} {offset}; while the HW rose from {least} to {most}, the "
                f"log had the LSO {_listed(possible)}"
            )  # fmt: skip

    def _within(
        self, rule: str, moments: _Moments, what: str, told: int, least: int, most: int
    ) -> None:
        self._book.seen["answers: of one term"] += 1
        if not least <= told <= most:
            self._broken(
                rule, moments.truth.tp, f"{what} {told}; while it was under way, that of broker "
                f"{self._broker} was {least}" + (f" to {most}" if most != least else "")
            )  # fmt: skip

    def _broken(self, rule: str, tp: TopicPartition, what: str) -> None:
        self._book.broken(rule, f"{tp}: {what}")


def _listed(offsets: list[int]) -> str:
    few = [str(offset) for offset in offsets[:3]]
    return ", ".join(few) + (f", ... {offsets[-1]}" if len(offsets) > len(few) else "")
