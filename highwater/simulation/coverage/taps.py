"""Listens to one simulation: answers with errors, state machines, and pairs of events.

The doors are few: the metrics of each broker's life count the errors in its answers; the machines'
classes are told to note a change of state; the rules say what happens to partitions.  All of it is
put back when the simulation ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from highwater.broker.coordinator.group.group import Group
from highwater.broker.coordinator.transaction.transaction import Transaction
from highwater.broker.request.request_metrics import Metrics
from highwater.controller.rules.machine import Machine
from highwater.simulation.coverage import branches
from highwater.simulation.rules.change_hooks import WatchedPartition

if TYPE_CHECKING:
    from highwater.kafka.types import TopicPartition

Reached = dict[str, list[str]]
"""By kind, the things that one seed reached."""

GONE = "NonExistent"
MOMENTS = 5
"""So many times of an event are noted in a seed."""


class Collector:
    """The reach of one seed."""

    def __init__(self) -> None:
        self.transitions: dict[str, None] = {}
        self.pairs: dict[str, None] = {}
        self.metrics: list[Metrics] = []
        self.faults: Callable[[], list[str]] = list
        """The kinds of faults under way."""
        self.clock: Callable[[], float] | None = None
        """Seconds since the schedule began, once it has begun."""
        self.moments: dict[str, list[float]] = {}
        """The first few times of each event of a partition."""
        self._last: dict[TopicPartition, str] = {}

    def moved(self, machine: str, before: str, after: str) -> None:
        self.transitions[f"{machine}: {before} -> {after}"] = None

    def happened(self, what: str, tp: TopicPartition) -> None:
        """An event of a partition: a pair with the one before it there, and with each fault."""
        if self.clock is not None:
            times = self.moments.setdefault(what, [])
            if len(times) < MOMENTS:
                times.append(round(self.clock(), 2))
        before = self._last.get(tp)
        self._last[tp] = what
        if before is not None:
            self.pairs[f"{before}, then {what}"] = None
        for fault in self.faults():
            self.pairs[f"during {fault}: {what}"] = None

    def errors(self) -> list[str]:
        found = {
            f"{api}: {error}": None
            for metrics in self.metrics
            for api, counted in metrics.by_name().items()
            for error in counted.errors
            if api not in ("FetchConsumer", "FetchFollower")
        }
        return sorted(found)

    def reached(self) -> Reached:
        return {
            "errors": self.errors(),
            "transitions": sorted(self.transitions),
            "pairs": sorted(self.pairs),
            "branches": branches.taken(),
        }


class _Phases(dict[Any, Any]):
    """A controller's table of phases, which notes each change."""

    def __init__(self, note: Callable[[str, str], None]) -> None:
        super().__init__()
        self._note = note

    def __setitem__(self, key: Any, phase: Any) -> None:
        before = self.get(key)
        self._note(named(before), named(phase))
        super().__setitem__(key, phase)

    def __delitem__(self, key: Any) -> None:
        self._note(named(self.get(key)), GONE)
        super().__delitem__(key)

    def pop(self, key: Any, *default: Any) -> Any:
        if key in self:
            self._note(named(self[key]), GONE)
        return super().pop(key, *default)


def named(phase: Any) -> str:
    """A phase in one word: OnlinePartition is Online."""
    if phase is None:
        return GONE
    name = phase.label if hasattr(phase, "label") else str(phase.value)
    return str(name).removesuffix("Partition").removesuffix("Replica").removeprefix("Replica")


@contextmanager
def listening(collector: Collector) -> Iterator[None]:
    """Listens until the end of the block."""
    branches.forget()
    with ExitStack() as taps:
        taps.enter_context(_noting(Group, "state", collector, "group"))
        taps.enter_context(_noting(Transaction, "stored", collector, "transaction"))
        taps.enter_context(_noting(WatchedPartition, "role", collector, "partition's role"))
        taps.enter_context(_instead(Metrics, "__init__", _kept(collector)))
        taps.enter_context(_instead(Machine, "__init__", _phases(collector)))
        taps.enter_context(_instead(Machine, "step", _events(collector)))
        yield


@contextmanager
def _instead(owner: Any, name: str, wrap: Callable[[Any], Any]) -> Iterator[None]:
    """Replaces a method by what `wrap` makes of it."""
    own, usual = name in owner.__dict__, getattr(owner, name)
    setattr(owner, name, wrap(usual))
    try:
        yield
    finally:
        if own:
            setattr(owner, name, usual)
        else:
            delattr(owner, name)


def _noting(owner: Any, field: str, collector: Collector, machine: str) -> Any:
    """Notes each assignment to a field."""

    def wrap(usual: Any) -> Any:
        def noting(self: Any, name: str, value: Any) -> None:
            if name == field:
                before, after = _state(getattr(self, field, None)), _state(value)
                if before != GONE or after != GONE:
                    collector.moved(machine, before, after)
            usual(self, name, value)

        return noting

    return _instead(owner, "__setattr__", wrap)


def _state(value: Any) -> str:
    """A state, or the state of what is stored."""
    return named(getattr(value, "state", value))


def _kept(collector: Collector) -> Callable[[Any], Any]:
    def wrap(usual: Any) -> Any:
        def init(self: Metrics) -> None:
            usual(self)
            collector.metrics.append(self)

        return init

    return wrap


def _phases(collector: Collector) -> Callable[[Any], Any]:
    def wrap(usual: Any) -> Any:
        def init(self: Machine, *args: Any) -> None:
            usual(self, *args)
            for kind in ("partition", "replica"):
                note = lambda a, b, kind=kind: collector.moved(f"controller's {kind}", a, b)  # noqa: E731
                setattr(self.state, f"{kind}_phases", _Phases(note))

        return init

    return wrap


def _events(collector: Collector) -> Callable[[Any], Any]:
    def wrap(usual: Any) -> Any:
        def step(self: Machine, event: Any, now_ms: int = 0) -> Any:
            effects = usual(self, event, now_ms)
            collector.transitions[f"controller takes {type(event).__name__}"] = None
            for effect in effects:
                collector.transitions[f"controller orders {type(effect).__name__}"] = None
            return effects

        return step

    return wrap
