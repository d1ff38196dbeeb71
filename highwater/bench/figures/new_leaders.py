"""Finds when a partition got its new leader, from the logs of Highwater's brokers; a client's pause
is longer, because the client itself waits before it tries again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

_STARTED = re.compile(r"\[([\d-]+ [\d:]+,\d+)\] INFO (\S+): leader in epoch \d+ ")


def leads_from(line: str, partition: str) -> float | None:
    """The time, in seconds since 1970, of a log line by which a broker leads the partition.

    >>> line = "[1970-01-02 00:00:00,250] INFO orders-0: leader in epoch 3 from offset 7, ISR [2]"
    >>> leads_from(line, "orders-0") % 60
    0.25
    >>> leads_from(line, "orders-1") is None
    True
    """
    found = _STARTED.match(line)
    if found is None or found[2] != partition:
        return None
    return datetime.strptime(found[1], "%Y-%m-%d %H:%M:%S,%f").timestamp()


def new_leader_s(logs: Iterable[Path], partition: str, since: float) -> float | None:
    """Seconds from `since` until some broker led the partition; None if no log shows one."""
    times = (
        when
        for log in logs
        if log.exists()
        for line in log.read_text(errors="replace").splitlines()
        if (when := leads_from(line, partition)) is not None and when >= since
    )
    first = min(times, default=None)
    return None if first is None else first - since
