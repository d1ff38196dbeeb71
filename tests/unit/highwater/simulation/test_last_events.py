"""A broker's mistake is found, though the broker goes on after it."""

from __future__ import annotations

import logging

from highwater.simulation.last_events import Trace, TraceHandler


def test_a_mistake_in_the_log_is_told() -> None:
    told: list[str] = []
    handler = TraceHandler(Trace(lambda: 0.0), told.append)
    log = logging.getLogger("broker.test")
    try:
        errors = OSError("disk"), AssertionError("invariant 2"), AttributeError("no such thing")
        for error in errors:
            log.error("handling Fetch failed", exc_info=error)
        log.error("no exception")
    finally:
        handler.detach()
    assert told == [
        "-: error: handling Fetch failed [AssertionError('invariant 2')]",
        "-: error: handling Fetch failed [AttributeError('no such thing')]",
    ]
