"""The form of a verb's row: what an entry may say, what it does, and which clusters can have it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from enum import Enum
from typing import Any, Literal

from highwater.cluster.faults.done import Done
from highwater.cluster.faults.fault_model import Fault
from highwater.cluster.faults.scene import Scene

Effect = Callable[[Any, Fault], Awaitable[Done]]
"""Carries a fault out on a `Stage`; a verb with `only="runs"`, on a `ChaosStage`."""


class Kind(Enum):
    """A trait of clusters, for which they cannot have some verbs."""

    DOORLESS = "some brokers are not Highwater's, or no processes of this harness"
    FOREIGN = "some brokers are not Highwater's"
    ELSEWHERE = "the brokers are no processes of this harness"
    REMOTE = "others started the cluster"
    KRAFT = "there is no ZooKeeper"
    TLS = "clients come over TLS"
    NOT_LINUX = "this machine is no Linux"


@dataclass(frozen=True, slots=True)
class Field:
    """A field that a verb adds to those of every entry."""

    name: str
    meaning: str
    check: Callable[[Scene, Any], None] | None = field(default=None, compare=False)
    """Raises Wrong where the value makes no sense in the scene."""
    type: type[str] | type[int] | type[float] | type[bool] = str
    unit: str = ""
    choices: tuple[str, ...] = ()
    required: bool = False
    default: Any = None
    """The value that the effect gets if the entry has none; None: it gets no value."""

    @property
    def text(self) -> str:
        """Its meaning, with the unit and the default, in words."""
        unit = f", in {self.unit}" if self.unit else ""
        value = f"{self.default:g}" if isinstance(self.default, float) else self.default
        return f"{self.meaning}{unit}" + (f" [default: {value}]" if value else "")


@dataclass(frozen=True, slots=True)
class Target:
    """What a verb may be aimed at."""

    name: str
    check: Callable[[Scene, str], None]
    required: bool = True


@dataclass(frozen=True, slots=True)
class Verb:
    name: str
    effect: Effect
    does: str
    """One sentence for the pages."""
    seen: str = ""
    """The effect that it waits for."""
    _: KW_ONLY
    target: Target | None = None
    fields: tuple[Field, ...] = ()
    check: Callable[[Scene, Fault], None] | None = None
    """Checks an entry as a whole; the fault has its defaults."""
    lasts: bool = False
    """Whether `for` has a meaning, because something ends the fault."""
    mended_at_once: bool = False
    """Whether the fault ends as soon as its effect was seen, if its entry has no `for`."""
    makes_rule: bool = False
    """Whether `release` can name it, by its `as`."""
    only: Literal["", "schedules", "runs"] = ""
    """`schedules`: it arranges their entries and is no fault; `runs`: it needs their workload."""
    commands: tuple[str, ...] = ()
    """The user's commands that it takes on a cluster that others started."""
    by_links: bool = False
    """Whether the verb makes all traffic pass through the proxies from then on.  A member that
    stands still could not hand its connections to them any more."""
    cannot: Mapping[Kind, str] = field(default_factory=dict)
    """The kinds of cluster that cannot have it, with the reason."""

    @property
    def required(self) -> list[str]:
        """What an entry must give."""
        target = ["target"] if self.target is not None and self.target.required else []
        return target + [field.name for field in self.fields if field.required]

    def whole(self, fault: Fault) -> Fault:
        """The fault with the defaults of fields that it does not give."""
        defaults = {f.name: f.default for f in self.fields if f.default is not None}
        return replace(fault, params={**defaults, **fault.params})

    async def carry_out(self, stage: Any, fault: Fault) -> Done:
        if self.by_links and stage.cluster.links is not None:
            await stage.cluster.links.touch()
        return await self.effect(stage, self.whole(fault))
