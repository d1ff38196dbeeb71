"""The options of a run: its length, its load, its workloads, and its faults."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, make_dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from highwater.simulation.part_list import PARTS

if TYPE_CHECKING:
    from highwater.simulation.workloads.part import Part

T = TypeVar("T")


def with_flags(parts: Sequence[type[Part]]) -> Callable[[type[T]], type[T]]:
    """Adds a field for each flag of the parts, False unless it is given."""

    def add(options: type[T]) -> type[T]:
        flags = [(part.flag, bool, False) for part in parts if part.flag]
        return make_dataclass(
            options.__name__,
            flags,
            bases=(options,),
            namespace={"__module__": options.__module__, "known": parts},
            frozen=True,
        )

    return add


@with_flags(PARTS)
@dataclass(frozen=True)
class Options:
    """The options of a run, apart from its seed."""

    known: ClassVar[Sequence[type[Part]]]
    seconds: float = 30.0
    pace: float = 1.0
    """The clients' load; 1 means some 85 operations a virtual second, which is most of the cost."""
    faults: bool = True
    sql: bool = True
    """Whether the SQL of the checks judges the history, too."""
    vary: tuple[str, ...] = ()
    """Variations of the schedule, one after the other (`variations`)."""
    only: tuple[int, ...] | None = None
    """If given, only the faults at these positions of the schedule (those left by shrinking)."""
    coverage: bool = False
    """Whether to note which parts of the product the seed reaches (`coverage`)."""
    trace: Callable[[str], None] | None = None

    if TYPE_CHECKING:  # the flags, which `with_flags` adds

        def __init__(self, **given: Any) -> None: ...

        def __getattr__(self, flag: str) -> bool: ...

    @property
    def parts(self) -> list[type[Part]]:
        """The parts of the run."""
        return [p for p in self.known if all(not f or getattr(self, f) for f in (p.flag, *p.needs))]
