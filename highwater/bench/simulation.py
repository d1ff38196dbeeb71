"""`highwater bench sim`: the speed of simulated seeds.

All figures are of one core, by the processor time of this process: other work of the machine hardly
counts.  The seeds are those of `highwater sim`, with all rules checked.  The cost of the rules and
the checks is measured in separate runs, because a look at the clock after each step costs
something, too.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from highwater.bench.figures.rows import Row
from highwater.bench.figures.sides import Progress
from highwater.simulation.options import Options
from highwater.simulation.rules import sim_checks
from highwater.simulation.seed_outcome import Outcome
from highwater.simulation.seed_run import simulate
from highwater.world.sim import Kernel

_OPERATIONS = ("sends", "polls")


@dataclass(frozen=True, slots=True)
class Plan:
    seeds: range
    rounds: int = 3
    seconds: float = 30.0


class Broken(Exception):
    """A seed with a broken rule: its speed does not matter."""


def run(plan: Plan, say: Progress) -> list[Row]:
    speed: list[float] = []
    steps: list[float] = []
    costs: list[float] = []
    judged: list[float] = []
    operations: list[float] = []
    options = Options(seconds=plan.seconds)
    simulate(plan.seeds[0], Options(seconds=2.0))  # makes modules and tables
    for seed in plan.seeds:
        runs = [_timed(seed, options) for _ in range(plan.rounds)]
        seconds, outcome = min(runs, key=lambda timed: timed[0])
        speed.append(outcome.virtual_seconds / seconds)
        steps.append(outcome.steps / seconds)
        operations.append(_operations(outcome) / outcome.virtual_seconds)
        rules, checks = _shares(seed, options)
        costs.append(100 * rules)
        judged.append(100 * checks)
        say(
            f"seed {seed}: {speed[-1]:.1f} virtual seconds a second, "
            f"{operations[-1]:.0f} operations a virtual second"
        )
    return [
        Row("simulated cluster, a core", "virtual s/s", tuple(speed)),
        Row("its tasks' steps", "steps/s", tuple(steps)),
        Row("its clients", "operations/virtual s", tuple(operations)),
        Row("checking the rules", "% of the time", tuple(costs), smaller_is_better=True),
        Row("judging its history", "% of the time", tuple(judged), smaller_is_better=True),
    ]


def _timed(seed: int, options: Options) -> tuple[float, Outcome]:
    began = time.process_time()
    outcome = simulate(seed, options)
    seconds = time.process_time() - began
    if not outcome.ok:
        raise Broken(f"seed {seed}: {outcome.violation}")
    return seconds, outcome


def _operations(outcome: Outcome) -> int:
    return sum(outcome.operations[name] for name in _OPERATIONS)


def _shares(seed: int, options: Options) -> tuple[float, float]:
    """The shares of one run's time: after steps, in the code that watches them; and in the SQL of
    the checks, at its end."""
    after_steps, in_sql, stepped, judge = 0.0, 0.0, Kernel.stepped, sim_checks.judge

    def timed_step(kernel: Kernel, task: object) -> None:
        nonlocal after_steps
        began = time.process_time()
        stepped(kernel, task)
        after_steps += time.process_time() - began

    def timed_judge(*history: Any) -> Any:
        nonlocal in_sql
        began = time.process_time()
        findings = judge(*history)
        in_sql += time.process_time() - began
        return findings

    Kernel.stepped = timed_step  # type: ignore[method-assign,assignment]
    sim_checks.judge = timed_judge  # type: ignore[assignment]
    try:
        seconds, outcome = _timed(seed, options)
    finally:
        Kernel.stepped = stepped  # type: ignore[method-assign]
        sim_checks.judge = judge
    looks = 2 * _cost_of_a_look() * outcome.steps
    return max(after_steps - looks / 2, 0.0) / (seconds - looks), in_sql / (seconds - looks)


def _cost_of_a_look() -> float:
    began = time.process_time()
    for _ in range(1000):
        time.process_time()
    return (time.process_time() - began) / 1000
