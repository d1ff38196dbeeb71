"""Runs many seeds, on one or more processes, and adds up their outcomes."""

from __future__ import annotations

import os
import shlex
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from highwater.simulation.coverage import branches
from highwater.simulation.faults.disk_faults import CALLS, FLUSHED, TORN, in_a_flush, torn
from highwater.simulation.faults.random_faults import WEIGHTS
from highwater.simulation.options import Options
from highwater.simulation.part_list import SWITCHES
from highwater.simulation.seed_outcome import Outcome
from highwater.simulation.seed_processes import in_processes
from highwater.simulation.seed_run import simulate

SEEN = (
    "controller_moves",
    "hw_below_leo_at_election",
    "isr_expands",
    "isr_shrinks",
    "leader_changes",
    "truncated_batches",
)
OPERATIONS = (
    "acked",
    "duplicates",
    "end offsets",
    "lost as expected",
    "polled",
    "sends",
    "too large",
    "topics created",
    "topics deleted",
    "zombie producers",
)


@dataclass
class Summary:
    """Outcomes added up."""

    seeds: int = 0
    first_seed: int = 0
    broken: list[Outcome] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    pairs: Counter[str] = field(default_factory=Counter)
    operations: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    longest: Counter[str] = field(default_factory=Counter)
    expected_losses: int = 0
    virtual_seconds: float = 0.0
    simulated_seconds: float = 0.0
    """Processor time spent inside simulations, on all processes together."""
    steps: int = 0
    checks: int = 0
    started: float = field(default_factory=time.perf_counter)

    def add(self, outcome: Outcome) -> None:
        self.first_seed = min(self.first_seed, outcome.seed) if self.seeds else outcome.seed
        self.seeds += 1
        if not outcome.ok:
            self.broken.append(outcome)
        self.seen += outcome.seen
        self.faults += outcome.faults
        self.skipped += outcome.skipped
        self.pairs += outcome.pairs
        self.operations += outcome.operations
        self.errors += outcome.errors
        self.longest |= outcome.longest
        self.expected_losses += outcome.expected_losses
        self.virtual_seconds += outcome.virtual_seconds
        self.simulated_seconds += outcome.real_seconds
        self.steps += outcome.steps
        self.checks += outcome.checks

    def never(self) -> list[str]:
        """The events that a run should bring about and did not."""
        expected = [
            *((f"fault {kind}", self.faults[kind]) for kind in (*WEIGHTS, "late request")),
            *((f"seen {name}", self.seen[name]) for name in SEEN),
            *((f"operation {name}", self.operations[name]) for name in OPERATIONS),
            ("an expected loss", self.expected_losses),
        ]
        if self.faults["failing call"]:
            names = (*map(str, CALLS), *map(in_a_flush, FLUSHED), *map(torn, TORN))
            expected += ((name, self.faults[name]) for name in names)
        return [name for name, count in expected if not count]

    def is_enough(self, finds: int | None, minutes: float | None) -> bool:
        """Whether `finds` seeds have broken a rule, or `minutes` of real time are over; None means
        no such limit."""
        if finds is not None and len(self.broken) >= finds:
            return True
        return minutes is not None and self.real_seconds > minutes * 60

    @property
    def real_seconds(self) -> float:
        return time.perf_counter() - self.started

    def as_dict(self) -> dict[str, Any]:
        real = max(self.real_seconds, 1e-9)
        return {
            "seeds": self.seeds,
            "first_seed": self.first_seed,
            "simulated_seconds": round(self.simulated_seconds, 2),
            "violations": [describe(outcome) for outcome in self.broken],
            "seen": dict(sorted(self.seen.items())),
            "faults": dict(sorted(self.faults.items())),
            "skipped_faults": dict(sorted(self.skipped.items())),
            "fault_pairs": len(self.pairs),
            "never": self.never(),
            "operations": dict(sorted(self.operations.items())),
            "errors": dict(sorted(self.errors.items())),
            "longest_waits_while_well": dict(sorted(self.longest.items())),
            "expected_losses": self.expected_losses,
            "virtual_seconds": round(self.virtual_seconds, 1),
            "real_seconds": round(real, 1),
            "seeds_per_second": round(self.seeds / real, 3),
            "virtual_seconds_per_second_and_core": round(
                self.virtual_seconds / max(self.simulated_seconds, 1e-9), 2
            ),
            "steps": self.steps,
            "checks": self.checks,
        }


def describe(outcome: Outcome) -> dict[str, Any]:
    violation = outcome.violation
    assert violation is not None
    return {
        "seed": outcome.seed,
        "rule": violation.rule,
        "what": violation.what,
        "time": round(violation.time, 4),
        "digest": outcome.digest,
        "real_seconds": round(outcome.real_seconds, 2),
        "replay": outcome.replay,
        "last_events": outcome.last_events,
    }


def as_arguments(options: Options) -> list[str]:
    """The arguments of `highwater sim` for these options."""
    words = []
    usual = Options()
    if options.seconds != usual.seconds:
        words.append(f"--seconds {options.seconds:g}")
    if options.pace != usual.pace:
        words.append(f"--pace {options.pace:g}")
    words += [f"--{name.replace('_', '-')}" for name in SWITCHES if getattr(options, name)]
    if not options.faults:
        words.append("--no-faults")
    if options.vary:
        words.append(f"--vary {shlex.quote(','.join(options.vary))}")
    if options.only is not None:
        words.append(f"--only {','.join(map(str, options.only))}")
    return words


def replay_command(seed: int, options: Options) -> str:
    """The command that replays a seed with its trace."""
    return " ".join([f"highwater sim --replay {seed}", *as_arguments(options), "--trace"])


def outcomes(seeds: Iterable[int], options: Options, jobs: int) -> Iterator[Outcome]:
    """Runs the seeds; yields the outcomes in order with one job, in the order of their ends with
    more.  With coverage they always run in other processes, which prepare the modules to be watched
    before they import them."""
    if jobs <= 1 and not options.coverage:
        for seed in seeds:
            yield simulate(seed, options)
        return
    prepare = branches.install if options.coverage else None
    yield from in_processes(partial(simulate, options=options), seeds, max(jobs, 1), prepare)


def run_seeds(
    seeds: Iterable[int],
    options: Options,
    *,
    jobs: int = 1,
    minutes: float | None = None,
    finds: int | None = 1,
    progress: Callable[[Summary, Outcome], None] = lambda *_: None,
    done: Iterable[Outcome] = (),
) -> Summary:
    """Runs seeds and adds up their outcomes; stops after `finds` seeds with a broken rule (None:
    never), and when the time is up."""
    summary = Summary()
    known = {outcome.seed: outcome for outcome in done}
    for outcome in known.values():
        summary.add(outcome)
    seeds = [seed for seed in seeds if seed not in known]
    jobs = min(jobs, len(seeds))  # more processes would have nothing to do
    with closing(outcomes(seeds, options, jobs)) as running:  # type: ignore[type-var]
        for outcome in running:
            outcome.replay = replay_command(outcome.seed, options)
            summary.add(outcome)
            progress(summary, outcome)
            if summary.is_enough(finds, minutes):
                break
    return summary


def usual_jobs() -> int:
    return os.cpu_count() or 1
