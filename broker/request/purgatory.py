"""Purgatory: holds an answer until an event, or until its time-out.

A delayed operation (Kafka's DelayedOperation) is an acks=all Produce waiting for the HW, a Fetch
waiting for bytes, an election waiting for leaders.  It is *watched* under keys (a partition, a
group).  Code that changes something calls `check(kind, keys)`, and the operations watched under
these keys try again.  An operation ends exactly once, when `try_complete` returns an answer or when
`on_expire` does; only the purgatory calls these two, the first of them when the operation is
submitted.  At the operation's end all references to it (watch lists, the timing wheel) are removed,
so that nothing completed is ever kept.  Kafka leaves completed operations in the watch lists and
purges them now and then, because its lists are under locks.  Here there is one thread, removal
costs O(1) a key, and the two `purgatory.purge.interval.requests` settings have nothing left to do.

Nothing below the purgatory knows of it.  Code that appends, moves a HW or is demoted reports watch
keys, which go to the CompletionSink.  That looks into the purgatory once per round of requests and
once per pass of the loop: a hundred appends wake a waiting fetch once.

Everything but the two `run` methods is pure, and gets the time from its caller.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar, Protocol

import trio

from highwater.base.event_loop import monotonic_ms
from highwater.base.waker import Waker
from highwater.broker.request.timing_wheel import TimerTask, TimingWheel

if TYPE_CHECKING:
    from highwater.broker.request.response import Response

log = logging.getLogger(__name__)

Respond = Callable[["Response"], None]
Failed = Callable[[Exception], None]


def _deadline(due_ms: int | None) -> float:
    """A deadline slightly late, so that `monotonic_ms` has reached `due_ms` despite rounding."""
    return float("inf") if due_ms is None else (due_ms + 0.01) / 1000


def _nothing() -> None:
    pass


class _Alarm(TimerTask):
    """A time-out with a callback."""

    __slots__ = ("_ring",)

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring

    def run(self) -> None:
        self._ring()


class DelayedOperation(TimerTask):
    """One waiting answer.  `keys` and `timeout_ms` are read when it is submitted.

    It is the timer task of its own time-out, as in Kafka: with a million waiting, each object less
    is one miss less in the processor's caches.
    """

    __slots__ = ("_failed", "_respond", "_watched_by", "completed", "keys", "timeout_ms")

    kind: ClassVar[str]
    """The name of its purgatory, as in Kafka: "Produce", "Fetch", "DeleteRecords" ..."""
    overlaps: ClassVar[bool] = False
    """Whether it waits only for others, so that the connection's next request may come."""

    keys: Sequence[Hashable]
    timeout_ms: int
    completed: bool
    _respond: Respond
    _failed: Failed | None
    _watched_by: Purgatories | None

    def heard(self, key: Hashable) -> None:
        """Called before `try_complete`, with the key under which there is news."""

    @abstractmethod
    def try_complete(self) -> Response | None:
        """The answer, if what it waits for has happened; it is not called again after that."""

    @abstractmethod
    def on_expire(self) -> Response:
        """The answer at the time-out."""

    def run(self) -> None:
        watched_by = self._watched_by
        if watched_by is not None:
            watched_by._expire(self)


class _Kind:
    """The watch lists of one purgatory."""

    __slots__ = ("expired", "pending", "watched")

    def __init__(self) -> None:
        self.watched: dict[Hashable, dict[DelayedOperation, None]] = {}
        self.pending = 0
        self.expired = 0


class Purgatories:
    """All purgatories of a broker: watch lists for each kind, and one timing wheel for all."""

    def __init__(self, now_ms: Callable[[], int] = monotonic_ms) -> None:
        self._now_ms = now_ms
        self._kinds: dict[str, _Kind] = {}
        self.fetches = self._kind("Fetch")
        """Counts followers' fetches, too, although these wait in their feeds."""
        self._wheel: TimingWheel | None = None
        self._sleeping = trio.CancelScope()
        self._sleeps_until: int | None = None

    def submit(self, op: DelayedOperation, respond: Respond, failed: Failed | None = None) -> None:
        """Answers at once if possible; otherwise watches the operation's keys and its time-out.

        `failed` gets an exception of `try_complete` or `on_expire`; the operation is then over.
        """
        op._respond = respond
        op._failed = failed
        op._watched_by = None
        op.completed = False
        if self._try(op):
            return
        if op.timeout_ms <= 0:
            self._expire(op)
            return
        self._kind(op.kind).pending += 1
        self._watch(op, op.keys)
        op._watched_by = self
        self.add_timer(op, self._now_ms() + op.timeout_ms)

    def _watch(self, op: DelayedOperation, keys: Iterable[Hashable]) -> None:
        watched = self._kind(op.kind).watched
        for key in keys:
            watchers = watched.get(key)
            if watchers is None:
                watched[key] = {op: None}
            else:
                watchers[op] = None

    def call_at(self, due_ms: int, callback: Callable[[], None]) -> TimerTask:
        """Calls back at a time, by the shared wheel, for other users (throttled connections)."""
        alarm = _Alarm(callback)
        self.add_timer(alarm, due_ms)
        return alarm

    def add_timer(self, task: TimerTask, due_ms: int) -> None:
        """Puts a task of the caller's own on the shared wheel."""
        wheel = self._wheel
        if wheel is None:
            wheel = self._wheel = TimingWheel(self._now_ms())
        wheel.add(task, due_ms)
        due = wheel.next_due_ms()
        if self._sleeps_until is None or (due is not None and due < self._sleeps_until):
            self._sleeps_until = due
            self._sleeping.deadline = _deadline(due)

    def check(self, kind: str, keys: Iterable[Hashable]) -> int:
        """Lets the operations watched under these keys look again; returns how many completed."""
        found = self._kinds.get(kind)
        if found is None:
            return 0
        completed = 0
        watched = found.watched
        # try each once: a fetch waits under thousands of keys
        to_try: dict[DelayedOperation, None] = {}
        for key in keys:
            watchers = watched.get(key)
            if watchers is None:
                continue
            for op in watchers:
                op.heard(key)
            to_try.update(watchers)
        for op in to_try:
            if not op.completed and self._try(op):
                completed += 1
        return completed

    def pending(self, kind: str) -> int:
        """The number of operations of this kind that wait."""
        found = self._kinds.get(kind)
        return 0 if found is None else found.pending

    def sizes(self) -> dict[str, tuple[int, int]]:
        """By kind, the numbers of watched keys (counted for each operation) and of operations."""
        return {
            name: (sum(map(len, kind.watched.values())), kind.pending)
            for name, kind in self._kinds.items()
        }

    def expirations(self) -> dict[str, int]:
        """By kind, the number of operations that ended by their time-out."""
        return {name: kind.expired for name, kind in self._kinds.items()}

    async def run(self) -> None:
        """Expires operations: one task, which sleeps until the next bucket of the wheel is due."""
        while True:
            if self._wheel is not None:
                self._wheel.advance(self._now_ms())
            due = None if self._wheel is None else self._wheel.next_due_ms()
            self._sleeps_until = due
            self._sleeping = trio.CancelScope()
            self._sleeping.deadline = _deadline(due)
            with self._sleeping:
                await trio.sleep_forever()

    def _kind(self, name: str) -> _Kind:
        kind = self._kinds.get(name)
        if kind is None:
            kind = self._kinds[name] = _Kind()
        return kind

    def _try(self, op: DelayedOperation) -> bool:
        """Tries an operation; returns whether it is now over, by an answer or an exception."""
        try:
            answer = op.try_complete()
        except Exception as exc:
            self._fail(op, exc)
            return True
        if answer is None:
            return False
        self._forget(op)
        op._respond(answer)
        return True

    def _expire(self, op: DelayedOperation) -> None:
        if op.completed:
            return
        self._kind(op.kind).expired += 1
        try:
            answer = op.on_expire()
        except Exception as exc:
            self._fail(op, exc)
            return
        self._forget(op)
        op._respond(answer)

    def _fail(self, op: DelayedOperation, exc: Exception) -> None:
        self._forget(op)
        if op._failed is None:
            log.error("delayed %s failed and nobody answers for it", op.kind, exc_info=exc)
        else:
            op._failed(exc)

    def _forget(self, op: DelayedOperation) -> None:
        """Ends an operation: takes it out of every watch list, and off the wheel."""
        assert not op.completed, "a delayed operation completes once"
        op.completed = True
        if op._watched_by is None:
            return  # it was answered at once
        op._watched_by = None
        op.cancel()
        kind = self._kinds[op.kind]
        kind.pending -= 1
        watched = kind.watched
        for key in op.keys:
            watchers = watched.get(key)
            if watchers is not None:
                watchers.pop(op, None)
                if not watchers:
                    del watched[key]


class Looker(Protocol):
    def look(self) -> None:
        """Called when there is news; raises nothing."""


class CompletionSink:
    """Collects watch keys, and gives them to the purgatories at the end of each round of requests
    (`drain`), or otherwise once per pass of the loop.

    The answers that result leave between `hold` and `go`, because a HW that moves answers several
    requests of one connection.
    """

    def __init__(self, purgatories: Purgatories) -> None:
        self.purgatories = purgatories
        self.hold: Callable[[], None] = _nothing
        self.go: Callable[[], None] = _nothing
        self._keys: dict[str, dict[Hashable, None]] = {}
        self._lookers: list[Looker] = []
        self._waker = Waker()
        self._collecting = False

    def add(self, kind: str, keys: Iterable[Hashable]) -> None:
        """Notes news for the operations of a kind that are watched under these keys."""
        collected = self._keys.get(kind)
        if collected is None:
            collected = self._keys[kind] = {}
            if not self._collecting:
                self._waker.wake()
        collected.update(dict.fromkeys(keys))

    def look(self, looker: Looker) -> None:
        """Makes a looker look with the others; the looker itself sees that it is added once."""
        self._lookers.append(looker)
        if not self._collecting:
            self._waker.wake()

    def collect(self) -> None:
        """Begins a round of requests, which `settle` ends: the task need not be woken in it."""
        self._collecting = True

    def settle(self, at_once: bool) -> None:
        """Ends the round, and looks at what it completed, at once or in the next pass."""
        self._collecting = False
        if at_once:
            self.drain()
        elif self._keys or self._lookers:
            self._waker.wake()

    def drain(self) -> int:
        """Looks at everything collected so far; keys added meanwhile wait for the next pass."""
        keys, lookers = self._keys, self._lookers
        if not keys and not lookers:
            return 0
        self._keys, self._lookers = {}, []
        self.hold()
        try:
            for looker in lookers:
                looker.look()
            completed = 0
            for kind, found in keys.items():
                completed += self.purgatories.check(kind, found)
                if kind == "Fetch":  # records that came are news for share groups, too
                    completed += self.purgatories.check("ShareFetch", found)
            return completed
        finally:
            self.go()

    async def run(self) -> None:
        while True:
            if not self._keys and not self._lookers:
                await self._waker.sleep()
            self.drain()
            if self._keys or self._lookers:
                await trio.lowlevel.checkpoint()
