"""Reduces the schedule of a failing seed to few faults that still break the same rule.

The schedule is cut into halves, quarters and so on (delta debugging): a part without which the rule
still breaks is dropped.  Without a fault the random choices of the others change, and so the course
of events; only the rule must be the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from highwater.simulation.options import Options
from highwater.simulation.seed_outcome import Outcome
from highwater.simulation.seed_run import simulate

Tell = Callable[[str], None]


def shrink(seed: int, options: Options, tell: Tell = lambda _: None) -> Outcome:
    """The outcome of the smallest schedule found; its `only` lists the faults that are left.

    Raises ValueError where the seed breaks no rule.
    """
    best = simulate(seed, options)
    if best.violation is None:
        raise ValueError(f"seed {seed} breaks no rule: there is nothing to shrink")
    rule = best.violation.rule
    kept = list(options.only) if options.only is not None else list(range(len(best.schedule)))
    tell(f"{rule} with {len(kept)} faults")
    parts = 2
    while kept:
        parts = min(parts, len(kept))
        size = -(-len(kept) // parts)
        for start in range(0, len(kept), size):
            fewer = kept[:start] + kept[start + size :]
            outcome = simulate(seed, replace(options, only=tuple(fewer)))
            if outcome.violation is not None and outcome.violation.rule == rule:
                kept, best = fewer, outcome
                tell(f"{rule} with {len(kept)} faults")
                parts = max(parts - 1, 2)
                break
        else:
            if size == 1:
                break
            parts *= 2
    best.only = tuple(kept)
    return best
