"""A run with security does not begin before its access rules hold."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio
import trio.testing

from highwater.chaos.secured_clients import until_right
from highwater.cluster.interface import ClusterError


def wait(look: Callable[[], Awaitable[str]]) -> None:
    trio.run(until_right, look, clock=trio.testing.MockClock(autojump_threshold=0))


async def never() -> str:
    await trio.sleep_forever()
    raise AssertionError


async def wrong() -> str:
    return "broker-2 tells bob NONE of safe"


def test_brokers_that_never_answer_are_no_proof() -> None:
    with pytest.raises(ClusterError, match="within 90 s: no broker has answered yet"):
        wait(never)


def test_what_is_wrong_is_told() -> None:
    with pytest.raises(ClusterError, match="within 90 s: broker-2 tells bob NONE of safe"):
        wait(wrong)


def test_it_returns_when_nothing_is_wrong_any_more() -> None:
    said = iter(("not yet", "not yet", ""))

    async def look() -> str:
        return next(said)

    wait(look)
    assert next(said, None) is None
