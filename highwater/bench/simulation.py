"""`highwater bench sim`: the speed of simulated seeds.

All figures are those of one core, measured by this process's CPU time, on which other work of the
machine has hardly any effect.  The seeds are those of `highwater sim`, with all rules checked.  The
cost of the rules and the checks is measured in separate runs, because reading the clock after each
step costs something, too.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import trio

from highwater.bench.benchmark import option
from highwater.bench.figures.rows import Line, Samples, Table
from highwater.bench.figures.sides import BenchFailed, Sides
from highwater.simulation import options as simulated
from highwater.simulation.rules import sim_checks
from highwater.simulation.seed_outcome import Outcome
from highwater.simulation.seed_run import simulate
from highwater.world.sim import Kernel

_OPERATIONS = ("sends", "polls")


@dataclass(frozen=True, slots=True)
class Options:
    seeds: range = option(range(10))
    rounds: int = option(3, "Of each seed; the best counts.", least=1)
    seconds: float = option(30.0, "Virtual, of load and faults.")


LINES = (
    Line("speed", "simulated cluster, a core", "virtual s/s", more_is_better=True),
    Line("steps", "its tasks' steps", "steps/s", more_is_better=True),
    Line("operations", "its clients", "operations/virtual s", more_is_better=True),
    Line("rules", "checking the rules", "% of the time"),
    Line("checks", "judging its history", "% of the time"),
)


async def run(options: Options, sides: Sides) -> Table:
    return await trio.to_thread.run_sync(_measure, options, sides)


def _measure(options: Options, sides: Sides) -> Table:
    samples, world = Samples(), simulated.Options(seconds=options.seconds)
    simulate(options.seeds[0], simulated.Options(seconds=2.0))  # loads modules, makes tables
    for seed in options.seeds:
        runs = [_timed(seed, world) for _ in range(options.rounds)]
        seconds, outcome = min(runs, key=lambda timed: timed[0])
        rules, checks = _shares(seed, world)
        found = {
            "speed": outcome.virtual_seconds / seconds,
            "steps": outcome.steps / seconds,
            "operations": _operations(outcome) / outcome.virtual_seconds,
            "rules": 100 * rules,
            "checks": 100 * checks,
        }
        for line, value in found.items():
            samples.add(line, 0, value)
        sides.progress(
            f"seed {seed}: {found['speed']:.1f} virtual seconds a second, "
            f"{found['operations']:.0f} operations a virtual second"
        )
    return sides.table(LINES, samples)


def _timed(seed: int, options: simulated.Options) -> tuple[float, Outcome]:
    began = time.process_time()
    outcome = simulate(seed, options)
    seconds = time.process_time() - began
    if not outcome.ok:
        raise BenchFailed(
            f"seed {seed}: {outcome.violation}; `highwater sim --replay` shows it, and its speed "
            "can wait"
        )
    return seconds, outcome


def _operations(outcome: Outcome) -> int:
    return sum(outcome.operations[name] for name in _OPERATIONS)


def _shares(seed: int, options: simulated.Options) -> tuple[float, float]:
    """Two shares of one run's time: that of the code which watches each step, and that of the
    checks' SQL at the end."""
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
