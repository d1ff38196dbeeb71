"""Worker processes that die, fail, or are no longer wanted: none of it holds a run up."""

from __future__ import annotations

import multiprocessing
import os
import time
from typing import Any

import pytest

from highwater.simulation import seed_processes
from highwater.simulation.seed_outcome import Outcome
from highwater.simulation.seed_processes import WorkerDied, in_processes
from highwater.world.sim import ProcessCrashed


def ends(seed: int) -> Outcome:
    return Outcome(seed)


def dies(seed: int) -> Outcome:
    if seed == 3:
        os._exit(9)
    return Outcome(seed)


def fails(seed: int) -> Outcome:
    if seed == 3:
        raise ProcessCrashed("broker-2")  # no Exception, so a worker of a Pool would end of it
    return Outcome(seed)


def lasts(seed: int) -> Outcome:
    if seed:
        time.sleep(3600)
    return Outcome(seed)


@pytest.mark.parametrize("jobs", [1, 2])
def test_all_seeds_run_in_turns(jobs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seed_processes, "SEEDS_A_TURN", 2)
    found = [outcome.seed for outcome in in_processes(ends, range(5), jobs)]
    assert found == list(range(5)) if jobs == 1 else sorted(found) == list(range(5))


@pytest.mark.timeout(60)
def test_a_worker_that_dies_ends_the_run() -> None:
    with pytest.raises(WorkerDied, match=r"seeds .*3.* died: .*--jobs.*--log FILE"):
        list(in_processes(dies, range(8), 1))


@pytest.mark.timeout(60)
def test_an_error_of_the_simulation_names_its_seed() -> None:
    with pytest.raises(ProcessCrashed) as raised:
        list(in_processes(fails, range(8), 2))
    notes: list[Any] = raised.value.__notes__
    assert "seed 3 ended with this" in notes[-1]


@pytest.mark.timeout(60)
def test_who_has_seen_enough_does_not_wait_for_the_rest() -> None:
    outcomes = in_processes(lasts, range(8), 2)
    assert next(outcomes).seed == 0
    outcomes.close()  # type: ignore[attr-defined]
    deadline = time.monotonic() + 30
    while multiprocessing.active_children():
        assert time.monotonic() < deadline, "a process that nobody wants goes on"
        time.sleep(0.01)
