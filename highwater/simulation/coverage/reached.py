"""The reach of many seeds together: counted, kept as JSON, shown beside all there is to reach.

What there is to reach is taken from the product: the error codes that a handler's file names, the
state machines' steps, the controller's events, the arms of the marked modules, the square of the
partition's events.  A code that comes from below a handler counts once it has been seen.
"""

from __future__ import annotations

import inspect
import json
import re
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

from highwater.broker.handlers import HANDLERS
from highwater.controller.rules import partitions, replicas
from highwater.controller.rules.machine import PROCEDURES
from highwater.simulation.coverage import branches
from highwater.simulation.coverage.taps import GONE, Reached, named
from highwater.simulation.faults.random_faults import WEIGHTS

KINDS = ("errors", "transitions", "branches", "pairs")

EVENTS = (
    "its topic is made", "its topic is gone", "other replicas", "the ISR grows", "the ISR shrinks",
    "an election", "no leader", "a cut", "a log's beginning goes", "its leader is back",
    "a follower is back", "a move", "a move ends", "its leader learns of a term",
    "a follower learns of a term",
)  # fmt: skip

_STEPS: dict[str, dict[str, tuple[str, ...]]] = {
    "group": {
        GONE: ("Empty",),
        "Empty": ("PreparingRebalance", "Stable", "Empty", "Dead"),
        "PreparingRebalance": ("CompletingRebalance", "Empty", "Dead"),
        "CompletingRebalance": ("Stable", "PreparingRebalance", "Dead"),
        "Stable": ("PreparingRebalance", "Stable", "Dead"),
    },
    "transaction": {
        GONE: ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit",
               "CompleteAbort"),
        "Empty": ("Empty", "Ongoing", GONE),
        "Ongoing": ("Ongoing", "PrepareCommit", "PrepareAbort"),
        "PrepareCommit": ("CompleteCommit",),
        "PrepareAbort": ("CompleteAbort",),
        "CompleteCommit": ("Ongoing", "Empty", GONE),
        "CompleteAbort": ("Ongoing", "Empty", GONE),
    },
    "partition's role": {
        "none": ("leader", "follower", "none", "offline"),
        "leader": ("leader", "follower", "none", "offline"),
        "follower": ("leader", "follower", "none", "offline"),
    },
}  # fmt: skip
"""The steps of the machines that have no table of their own."""


AT_ONCE = (
    "bounce", "expire session", "drop zookeeper connections", "reset connections", "reset clients",
    "jump clock", "stale request", "full channel",
)  # fmt: skip
"""Faults that are over at once, so that no event can happen during them."""


class ReachedProblem(Exception):
    """The file cannot be added to; the message says why, and how to go on."""


@dataclass(slots=True)
class Kept:
    """A run that reached something which none before it had, to be varied (`steering`)."""

    seed: int
    vary: tuple[str, ...]
    new: int
    """How many things it was the first to reach."""
    tries: int = 0
    """How many variations of it were run."""
    fruits: int = 0
    """How many of those were kept."""


Name = int | str
"""A seed, or a seed and its variations, as arguments: `17 --vary 31,40`."""


def _earlier(one: Name, other: Name) -> Name:
    """The smaller seed; a run without variations counts as earlier than one with them."""
    if isinstance(one, int) and isinstance(other, int):
        return min(one, other)
    return other if isinstance(one, str) and isinstance(other, int) else one


class Coverage:
    """By kind and thing: how many seeds reached it, and the first that did."""

    def __init__(self, commit: str) -> None:
        self.commit = commit
        self.seeds = 0
        self.found: dict[str, dict[str, tuple[int, Name]]] = {kind: {} for kind in KINDS}
        self.kept: list[Kept] = []

    def add(self, name: Name, reached: Reached) -> int:
        """Gives the number of things that no seed had reached."""
        self.seeds += 1
        new = 0
        for kind, things in reached.items():
            known = self.found.setdefault(kind, {})
            for thing in things:
                new += thing not in known
                times, first = known.get(thing, (0, name))
                known[thing] = (times + 1, _earlier(first, name))
        return new

    def merge(self, other: Coverage) -> None:
        """Adds other seeds; raises ReachedProblem."""
        if other.commit != self.commit:
            raise ReachedProblem(
                f"made at {other.commit}, and this is {self.commit}: name another file"
            )
        self.seeds += other.seeds
        self.kept += other.kept
        for kind, things in other.found.items():
            known = self.found.setdefault(kind, {})
            for thing, (times, first) in things.items():
                before, earliest = known.get(thing, (0, first))
                known[thing] = (before + times, _earlier(earliest, first))

    # -- as a file ------------------------------------------------------------------------------

    def write(self, path: Path) -> None:
        data = {
            "commit": self.commit,
            "seeds": self.seeds,
            "reached": {kind: dict(sorted(things.items())) for kind, things in self.found.items()},
            "never": {kind: self.never(kind) for kind in KINDS},
        }
        if self.kept:
            data["kept"] = [asdict(kept) for kept in self.kept]
        path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Coverage:
        """Raises ReachedProblem where the file is something else."""
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            made = cls(data["commit"])
            made.seeds = int(data["seeds"])
            made.found = {
                kind: {thing: (times, first) for thing, (times, first) in things.items()}
                for kind, things in data["reached"].items()
            }
            made.kept = [
                Kept(**(one | {"vary": tuple(one["vary"])})) for one in data.get("kept", [])
            ]
        except (ValueError, KeyError, TypeError) as error:
            raise ReachedProblem("it is no coverage of seeds: name another file") from error
        return made

    # -- beside what there is -------------------------------------------------------------------

    def never(self, kind: str) -> list[str]:
        known = self.found.get(kind, {})
        return [thing for thing in there_is(kind) if thing not in known]

    def table(self) -> str:
        """A line for each kind."""
        lines = [f"coverage of {self.seeds} seeds at {self.commit}"]
        lines.append(f"  {'':12} {'there is':>9} {'reached':>8} {'never':>6} {'by one seed':>12}")
        for kind in KINDS:
            known = self.found.get(kind, {})
            never = len(self.never(kind))
            alone = sum(times == 1 for times, _ in known.values())
            lines.append(f"  {kind:12} {len(known) + never:9} {len(known):8} {never:6} {alone:12}")
        return "\n".join(lines)


def there_is(kind: str) -> list[str]:
    """Everything of a kind that the product's source shows."""
    return list(dict.fromkeys(_THERE_IS[kind]()))


def _errors() -> list[str]:
    found = []
    for handler in HANDLERS:
        source = inspect.getsource(handler)
        codes = sorted(set(re.findall(r"ErrorCode\.([A-Z_]+)", source)) - {"NONE"})
        found += [f"{handler.API.name}: {code}" for code in ("NONE", *codes)]
    return found


def _transitions() -> list[str]:
    found = [f"controller takes {event.__name__}" for event in PROCEDURES]
    tables: tuple[tuple[str, Any], ...] = (
        ("partition", partitions.VALID_BEFORE),
        ("replica", replicas.VALID_BEFORE),
    )
    for machine, before in tables:
        for target, sources in before.items():
            found += [
                f"controller's {machine}: {named(source)} -> {named(target)}" for source in sources
            ]
    for machine, steps in _STEPS.items():
        found += [f"{machine}: {a} -> {b}" for a, targets in steps.items() for b in targets]
    return found


def _pairs() -> list[str]:
    found = [f"{a}, then {b}" for a, b in product(EVENTS, repeat=2)]
    lasting = [fault for fault in WEIGHTS if fault not in AT_ONCE]
    return found + [f"during {fault}: {event}" for fault, event in product(lasting, EVENTS)]


_THERE_IS = {
    "errors": _errors,
    "transitions": _transitions,
    "branches": branches.all_arms,
    "pairs": _pairs,
}
