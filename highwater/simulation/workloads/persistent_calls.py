"""Repeats calls of a transactional client until they succeed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import trio

from highwater.simulation.workloads.plain_client import Failed, SimClient

GIVE_UP_S = 12.0
_AGAIN = frozenset(
    {
        "TIMEOUT", "CONNECTION", "CONCURRENT_TRANSACTIONS", "COORDINATOR_NOT_AVAILABLE",
        "NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS", "NOT_LEADER_OR_FOLLOWER",
        "LEADER_NOT_AVAILABLE", "UNKNOWN_TOPIC_OR_PARTITION", "NOT_ENOUGH_REPLICAS",
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "REQUEST_TIMED_OUT", "KAFKA_STORAGE_ERROR",
        "UNKNOWN_LEADER_EPOCH", "FENCED_LEADER_EPOCH", "OFFSET_NOT_AVAILABLE",
        "UNSTABLE_OFFSET_COMMIT",
    }
)  # fmt: skip
LOST = frozenset({"TIMEOUT", "CONNECTION", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR"})
"""Errors of an EndTxn that may have been carried out all the same."""


async def attempt(
    client: SimClient,
    call: Callable[[], Awaitable[Any]],
    lose: Callable[[], None],
    errors: Counter[str],
    noted: list[str] | None = None,
) -> Any:
    """Repeats a call until it succeeds; raises Failed for lasting errors, and after a while.

    `lose` forgets the broker that the client asked; `noted` gets the name of each error.
    """
    give_up = trio.current_time() + GIVE_UP_S
    while True:
        try:
            return await call()
        except Failed as failed:
            errors[failed.name] += 1
            if noted is not None:
                noted.append(failed.name)
            if failed.name not in _AGAIN or trio.current_time() > give_up:
                raise
            if failed.name != "CONCURRENT_TRANSACTIONS":
                lose()
            await client.pause(0.02, 0.2)
