"""A schedule of faults on an application, made from a seed: the faults that try its promises, then
those that aim at nothing."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from highwater.chaos.aimed.probes import ENDING
from highwater.chaos.aimed.windows import AHEAD, BEHIND
from highwater.chaos.faults.schedule import healthy
from highwater.cluster.faults.fault_model import Fault
from highwater.cluster.faults.scene import ANY_COPY


def generate(
    seed: int,
    duration_s: float,
    topic: str,
    group: str,
    copies: Sequence[str],
    *,
    exactly_once: bool,
    ordered: bool = True,
    errors: bool = True,
) -> list[Fault]:
    """Each kind of fault once, however short the run, in an order that the seed chooses; then more
    of them by chance, for the rest of the time.  `topic` is the input."""
    rng = random.Random(seed)

    def strike(when: str) -> Fault:
        lasts = rng.uniform(0.3, 1.0)
        return Fault("kill", ANY_COPY, lasts=lasts, params={"when": when})

    def sleeper() -> Fault:
        lasts = rng.uniform(0.5, 3.0)
        return Fault("pause", ANY_COPY, lasts=lasts, params={"when": BEHIND})

    def coordinator(params: dict[str, str]) -> Fault:
        where, lasts = f"coordinator of group {group}", rng.uniform(1.0, 2.5)
        return Fault("kill", where, lasts=lasts, params=params)

    aimed: list[Callable[[], Fault]] = [
        lambda: strike(AHEAD),
        lambda: Fault("lose_unreplicated"),
        *[lambda: strike(BEHIND), lambda: strike(ENDING)] * exactly_once,
        *[lambda: Fault("refuse_output", ANY_COPY)] * errors,
        *[lambda: Fault("reorder_output", ANY_COPY)] * ordered,
        *[sleeper] * (exactly_once and len(copies) > 1),
    ]
    by_chance: list[Callable[[], Fault]] = [
        lambda: Fault("kill", rng.choice(copies), lasts=rng.uniform(0.5, 2.0)),
        lambda: Fault("pause", rng.choice(copies), lasts=rng.uniform(2.0, 8.0)),
        lambda: Fault("kill", f"leader of {topic}-0", lasts=rng.uniform(1.0, 2.5)),
        lambda: coordinator(rng.choice(({}, {"when": BEHIND}))),
    ]
    acts = [*rng.sample(aimed, len(aimed)), *rng.sample(by_chance, len(by_chance))]
    required = len(acts)
    acts += rng.choices([*aimed, *by_chance], k=int(duration_s))
    faults = [healthy(2.0, optional=False)]
    for number, act in enumerate(acts):
        late = number >= required
        faults += [replace(act(), optional=late), healthy(rng.uniform(0.5, 2.0), late)]
    return faults
