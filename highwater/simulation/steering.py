"""Seeds that are steered to what was not reached.

A trial is a fresh seed, or a variation (`faults.variations`) of a run that is kept: one that
reached something which none before it had.  Of those the choice falls rather on the fruitful, and
on those that were not tried often.  Trials come in generations: each is chosen by what all earlier
generations found, so the search is the same with any number of processes.

What is known and what is kept stands in the file of `--coverage`, so a search goes on with the next
numbers where it stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from highwater.simulation.coverage import branches
from highwater.simulation.coverage.reached import Kept
from highwater.simulation.options import Options
from highwater.simulation.seed_outcome import Outcome
from highwater.simulation.seed_processes import in_generations
from highwater.simulation.seed_run import simulate
from highwater.simulation.seeds import Summary, replay_command
from highwater.world.chance import seeded

if TYPE_CHECKING:
    from highwater.simulation.coverage.reached import Coverage

GENERATION = 16
"""Trials that are chosen at once."""
FRESH = 0.3
"""The share of fresh seeds, once something is kept."""
LONGEST = 12
"""A run with so many variations is not varied again."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One run of a search."""

    seed: int
    vary: tuple[int, ...] = ()
    parent: Kept | None = None

    def __str__(self) -> str:
        return label(self.seed, self.vary)


def label(seed: int, vary: tuple[int, ...]) -> str:
    """The arguments that name a run beside its flags."""
    return f"{seed} --vary {','.join(map(str, vary))}" if vary else str(seed)


class Steering:
    """Chooses trials, and learns from them."""

    def __init__(self, coverage: Coverage) -> None:
        self.coverage = coverage

    def trial(self, number: int) -> Trial:
        """The trial of this number: a fresh seed has the same."""
        random = seeded("steer", number)
        open_ones = [kept for kept in self.coverage.kept if len(kept.vary) < LONGEST]
        if not open_ones or random.random() < FRESH:
            return Trial(number)
        weights = [(1 + kept.fruits) / (1 + kept.tries) for kept in open_ones]
        parent = random.choices(open_ones, weights)[0]
        parent.tries += 1
        return Trial(parent.seed, (*parent.vary, number), parent)

    def learn(self, trial: Trial, outcome: Outcome) -> int:
        """Gives the number of things that this run reached first, and keeps the run if any."""
        name: int | str = str(trial) if trial.vary else trial.seed
        new = self.coverage.add(name, outcome.reached)
        if new:
            self.coverage.kept.append(Kept(trial.seed, trial.vary, new))
            if trial.parent is not None:
                trial.parent.fruits += 1
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
    """A trial for each number; stops as `run_seeds` does, after a whole generation.  `options` must
    ask for coverage."""
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
            if finds is not None and len(summary.broken) >= finds:
                break
            if minutes is not None and summary.real_seconds > minutes * 60:
                break
    return summary
