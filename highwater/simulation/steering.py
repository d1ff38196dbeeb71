"""Steers the choice of seeds to what no run has reached yet.

A trial is one of three things:

* a fresh seed;
* a variation (`faults.variations`) of a kept run.  A run is kept if it reached something that none
  before it had reached; those with fruitful variations or few tries are preferred;
* an aimed run, for a pair of a fault and an event that never came about during it: a run in which
  the event came about gets that fault added, around the time of the event.

Trials come in generations: each is chosen by what all earlier generations found, so the search is
the same with any number of processes.

What was reached and which runs are kept is in the file of `--coverage`, so a later search goes on
with the next numbers.
"""

from __future__ import annotations

import shlex
from collections import Counter, deque
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from highwater.simulation.coverage import branches
from highwater.simulation.coverage.reached import Kept
from highwater.simulation.faults.random_faults import TARGETS, WEIGHTS
from highwater.simulation.faults.staged_faults import Fault
from highwater.simulation.faults.variations import as_variation
from highwater.simulation.options import Options
from highwater.simulation.seed_outcome import Outcome
from highwater.simulation.seed_processes import in_generations
from highwater.simulation.seed_run import simulate
from highwater.simulation.seeds import Summary, replay_command
from highwater.world.chance import Random, seeded

if TYPE_CHECKING:
    from highwater.simulation.coverage.reached import Coverage

GENERATION = 16
"""How many trials are chosen at once."""
FRESH, AIMED = 0.3, 0.35
"""The shares of fresh seeds and of aimed trials; the others vary a kept run."""
LONGEST = 12
"""A run with this many variations is not varied again."""
AIMS = 3
"""How many trials are aimed at the same pair."""
REMEMBERED = 8
"""How many of the latest runs with an event are remembered."""
_EARLIER_S, _LASTING_S = (0.1, 1.0), (1.0, 3.0)


@dataclass(frozen=True, slots=True)
class Trial:
    """One run of a search."""

    seed: int
    vary: tuple[str, ...] = ()
    parent: Kept | None = None

    def __str__(self) -> str:
        varied = f" --vary {shlex.quote(','.join(self.vary))}" if self.vary else ""
        return f"{self.seed}{varied}"


class Steering:
    """Chooses trials, and learns from them."""

    def __init__(self, coverage: Coverage) -> None:
        self.coverage = coverage
        self._moments: dict[str, deque[tuple[Trial, float]]] = {}
        """Event of a partition -> the latest runs with it, and its times in them."""
        self._aims: Counter[str] = Counter()

    def trial(self, number: int) -> Trial:
        """The trial of this number; a fresh seed is the number itself."""
        random = seeded("steer", number)
        open_ones = [kept for kept in self.coverage.kept if len(kept.vary) < LONGEST]
        chance = random.random()
        if not open_ones or chance < FRESH:
            return Trial(number)
        if chance < FRESH + AIMED and (aimed := self._aimed(random)) is not None:
            return aimed
        weights = [(1 + kept.fruits) / (1 + kept.tries) for kept in open_ones]
        parent = random.choices(open_ones, weights)[0]
        parent.tries += 1
        return Trial(parent.seed, (*parent.vary, str(number)), parent)

    def _aimed(self, random: Random) -> Trial | None:
        """A run that had an event, with a fault added around it, for a fault and event that no run
        has had together; None if there is none to try."""
        aims = []
        for pair in self.coverage.never("pairs"):
            fault, _, event = pair.removeprefix("during ").partition(": ")
            if fault in WEIGHTS and event in self._moments and self._aims[pair] < AIMS:
                aims.append((pair, fault, event))
        if not aims:
            return None
        pair, kind, event = random.choice(aims)
        self._aims[pair] += 1
        run, at = random.choice(self._moments[event])
        begin = round(max(0.0, at - random.uniform(*_EARLIER_S)), 2)
        lasting = round(random.uniform(*_LASTING_S), 1)
        added = as_variation(Fault(begin, kind, random.choice(TARGETS), lasting))
        return Trial(run.seed, (*run.vary, added))

    def learn(self, trial: Trial, outcome: Outcome) -> int:
        """Returns how many things this run was the first to reach, and keeps the run if any."""
        new = self.coverage.add(str(trial) if trial.vary else trial.seed, outcome.reached)
        if new:
            self.coverage.kept.append(Kept(trial.seed, trial.vary, new))
            if trial.parent is not None:
                trial.parent.fruits += 1
        if len(trial.vary) < LONGEST:
            for event, times in outcome.moments.items():
                latest = self._moments.setdefault(event, deque(maxlen=REMEMBERED))
                latest.extend((trial, at) for at in times[-2:])
        return new


def _run(trial: Trial, options: Options) -> Outcome:
    return simulate(trial.seed, replace(options, vary=trial.vary))


def run_steered(
    numbers: Iterable[int],
    options: Options,
    steering: Steering,
    *,
    jobs: int = 1,
    minutes: float | None = None,
    finds: int | None = 1,
    progress: Callable[[Summary, Outcome], None] = lambda *_: None,
) -> Summary:
    """Runs a trial for each number; stops as `run_seeds` does, but after a whole generation.
    `options` must have coverage on."""
    summary, left = Summary(), iter(numbers)

    def choose() -> list[Trial]:
        return [steering.trial(number) for number in islice(left, GENERATION)]

    work = partial(_run, options=options)
    with closing(in_generations(work, choose, max(jobs, 1), branches.install)) as generations:
        for generation in generations:
            for trial, outcome in generation:
                steering.learn(trial, outcome)
                outcome.replay = replay_command(trial.seed, replace(options, vary=trial.vary))
                summary.add(outcome)
                progress(summary, outcome)
            if summary.is_enough(finds, minutes):
                break
    return summary
