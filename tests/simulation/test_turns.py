"""A broker and a controller work on thousands of partitions in turns.  Here they do so with a
handful: other tasks come in between everywhere, and no rule is broken."""

from __future__ import annotations

import pytest

from highwater.broker.handlers import fetch
from highwater.broker.replica import feed, fetcher, fetcher_manager
from highwater.controller.rules import effects, replicas
from highwater.controller.rules import request_batch as requests
from highwater.controller.rules.effects import Pause
from highwater.controller.shell.term import Runtime
from highwater.simulation.options import Options
from highwater.simulation.seed_run import simulate


@pytest.mark.timeout(240)
@pytest.mark.parametrize("seed", [0, 4, 5])  # others have few such fetches
def test_a_turn_for_each_partition(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    turns = pauses = 0
    in_turns, find_out = feed.Feed.in_turns, Runtime._find_out

    async def counted_turns(of: feed.Feed) -> bool:
        nonlocal turns
        turns += 1
        return await in_turns(of)

    async def counted_pauses(runtime: Runtime, question: object) -> object:
        nonlocal pauses
        pauses += isinstance(question, Pause)
        return await find_out(runtime, question)  # type: ignore[arg-type]

    monkeypatch.setattr(feed.Feed, "in_turns", counted_turns)
    monkeypatch.setattr(Runtime, "_find_out", counted_pauses)
    for module in (feed, fetch, fetcher, fetcher_manager, effects, replicas, requests):
        monkeypatch.setattr(module, "AT_ONCE", 1)
    monkeypatch.setattr(fetcher, "CUTS_AT_ONCE", 1)
    outcome = simulate(seed, Options(seconds=15.0))
    assert outcome.violation is None, str(outcome.violation)
    assert outcome.operations["acked"] > 300
    assert turns > 10  # most fetches find all but one partition at rest
    assert pauses > 100
