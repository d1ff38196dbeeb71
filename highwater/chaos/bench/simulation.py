"""`highwater bench sim`: how fast seeds are simulated, and the pure machines alone.

All figures are of one core, by the processor time of this process: what else the machine does
hardly counts.  The seeds are those of `highwater sim`, with all rules checked.  What the rules cost
is measured in runs of their own, since a look at the clock after each step costs something, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from highwater.chaos.bench.machines import controller_steps, partition_steps, recorded
from highwater.chaos.bench.rows import Row
from highwater.chaos.simulated.run import Options, Outcome, simulate
from highwater.common.world.sim import Kernel

_OPERATIONS = ("sends", "polls")


@dataclass(frozen=True, slots=True)
class Plan:
    seeds: range
    rounds: int = 3
    seconds: float = 30.0
    cycles: int = 100_000
    """Appends of the partition machine."""
    deaths: int = 1500
    """Of brokers, as the controller machine is told."""


class Broken(Exception):
    """A seed with a broken rule: there is something more urgent than its speed."""


def run(plan: Plan, say: Callable[[str], None]) -> list[Row]:
    speed: list[float] = []
    steps: list[float] = []
    costs: list[float] = []
    operations: list[float] = []
    options = Options(seconds=plan.seconds)
    simulate(plan.seeds[0], Options(seconds=2.0))  # modules and tables are made
    for seed in plan.seeds:
        runs = [_timed(seed, options) for _ in range(plan.rounds)]
        seconds, outcome = min(runs, key=lambda timed: timed[0])
        speed.append(outcome.virtual_seconds / seconds)
        steps.append(outcome.steps / seconds)
        operations.append(_operations(outcome) / outcome.virtual_seconds)
        costs.append(100 * _rules_share(seed, options))
        say(
            f"seed {seed}: {speed[-1]:.1f} virtual seconds a second, "
            f"{operations[-1]:.0f} operations a virtual second"
        )
    partition = [partition_steps(plan.cycles) for _ in range(plan.rounds)]
    told, settings = recorded(plan.deaths)
    controller = [controller_steps(told, settings) for _ in range(plan.rounds)]
    return [
        Row("simulated cluster, a core", "virtual s/s", tuple(speed)),
        Row("its tasks' steps", "steps/s", tuple(steps)),
        Row("its clients", "operations/virtual s", tuple(operations)),
        Row("checking the rules", "% of the time", tuple(costs), smaller_is_better=True),
        Row("partition machine alone", "steps/s", tuple(partition)),
        Row("controller machine alone", "steps/s", tuple(controller)),
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


def _rules_share(seed: int, options: Options) -> float:
    """Of one run's time: what is spent after steps, with what watches them."""
    spent, usual = 0.0, Kernel.stepped

    def timed(kernel: Kernel, task: object) -> None:
        nonlocal spent
        began = time.process_time()
        usual(kernel, task)
        spent += time.process_time() - began

    Kernel.stepped = timed  # type: ignore[method-assign,assignment]
    try:
        seconds, outcome = _timed(seed, options)
    finally:
        Kernel.stepped = usual  # type: ignore[method-assign]
    empty = time.process_time()
    for _ in range(1000):
        time.process_time()
    clock = (time.process_time() - empty) / 1000
    return max(spent - clock * outcome.steps, 0.0) / (seconds - 2 * clock * outcome.steps)
