"""The last events in plain words, to help explain a broken rule."""

from __future__ import annotations

import errno
import logging
import os
import re
from collections import Counter, defaultdict, deque
from typing import TYPE_CHECKING

from highwater.world.sim.kernel import PROCESS

if TYPE_CHECKING:
    from collections.abc import Callable

_KEPT = 400
MOST_LINES, WITHIN_S = 50, 1.0
_UNUSED = re.compile(r"warning: (?:\S*/)?\S*?(checkpoint|\.snapshot)\b.*(?:is not used|instead)")
"""A broker's warning about a file that a power loss has torn."""
MISTAKES = (
    ArithmeticError, AssertionError, AttributeError, LookupError, NameError, RuntimeError,
    TypeError, ValueError,
)  # fmt: skip
"""Exceptions that no broker should ever log: only a mistake in its own code raises them."""
OWN_ERRORS = tuple(os.strerror(n) for n in (errno.ENOENT, errno.EBADF, errno.ENOTDIR, errno.EISDIR))
"""Errors that no fault raises; a broker that takes a directory offline for one of them has lost a
file by its own mistake."""


class Trace:
    """Events by process; `everything` is called for each (`--trace`)."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self._events: dict[str, deque[tuple[int, float, str]]] = {}
        self._count = 0
        self.everything: Callable[[str], None] | None = None

    def add(self, who: str, text: str) -> None:
        kept = self._events.get(who)
        if kept is None:
            kept = self._events[who] = deque(maxlen=_KEPT)
        self._count += 1
        kept.append((self._count, self.now(), text))
        if self.everything is not None:
            self.everything(f"{self.now():9.4f}  {who:<12} {text}")

    def last(self, n: int) -> list[str]:
        """The last n events of every process, in order."""
        lines = [
            (count, f"{time:9.4f}  {who:<12} {text}")
            for who, events in self._events.items()
            for count, time, text in list(events)[-n:]
        ]
        return [line for _, line in sorted(lines)]


class TraceHandler(logging.Handler):
    """Puts the brokers' log lines into the trace, under the name of the process.

    A broker's mistake may appear only in its log, because the requester just gets an error, or
    because nobody waits for what failed.  `mistaken` is called for it, and for a warning that is
    repeated again and again, which shows that the broker goes round in a circle.
    """

    def __init__(self, trace: Trace, mistaken: Callable[[str], None]) -> None:
        super().__init__(logging.INFO)
        self._trace = trace
        self._mistaken = mistaken
        self.unused: Counter[str] = Counter()
        """The damaged files that brokers found at a start, by kind."""
        self._times: defaultdict[tuple[str, str, int], deque[float]] = defaultdict(
            lambda: deque(maxlen=MOST_LINES)
        )
        root = logging.getLogger()
        self._level_before = root.level
        root.addHandler(self)
        root.setLevel(logging.INFO)

    def detach(self) -> None:
        root = logging.getLogger()
        root.removeHandler(self)
        root.setLevel(self._level_before)

    def emit(self, record: logging.LogRecord) -> None:
        process = PROCESS.get()
        text = f"{record.levelname.lower()}: {record.getMessage()}"
        if record.exc_info and record.exc_info[1] is not None:
            text += f" [{record.exc_info[1]!r}]"
        who = str(process) if process else "-"
        self._trace.add(who, text)
        own = record.levelno >= logging.ERROR and any(error in text for error in OWN_ERRORS)
        if own or (record.exc_info and isinstance(record.exc_info[1], MISTAKES)):
            self._mistaken(f"{who}: {text}")
        elif record.levelno >= logging.WARNING:
            if (unused := _UNUSED.match(text)) is not None:
                self.unused[f"damaged *{unused[1]}"] += 1
            self._count(who, record, text)

    def _count(self, who: str, record: logging.LogRecord, text: str) -> None:
        now = self._trace.now()
        times = self._times[who, record.pathname, record.lineno]
        times.append(now)
        if len(times) == MOST_LINES and now - times[0] < WITHIN_S:
            self._mistaken(f"{who} writes a line {MOST_LINES} times within a second: {text}")
