"""What the clients of a run know of their transactions."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from highwater.kafka.types import TopicPartition
    from highwater.simulation.rules.allowed_losses import Moment


class Fate(Enum):
    OPEN = "open"
    """No commit was requested."""
    COMMITTED = "committed"
    NEVER = "never"
    UNKNOWN = "unknown"

    @property
    def is_committed(self) -> bool:
        return self is Fate.COMMITTED

    @property
    def may_be_visible(self) -> bool:
        """Whether a commit was asked for, and may have been done."""
        return self in (Fate.COMMITTED, Fate.UNKNOWN)


@dataclass(slots=True)
class Told:
    """One transaction, as its producer knows it."""

    name: str
    transactional_id: str
    number: int
    fate: Fate = Fate.OPEN
    values: dict[TopicPartition, list[bytes]] = field(default_factory=dict)
    """Acknowledged values, in the order of sending."""
    offset: int | None = None
    """The group's offset, if acknowledged."""
    read: list[tuple[TopicPartition, int, bytes]] = field(default_factory=list)
    """What it read under read_committed before its end."""
    places: dict[bytes, tuple[TopicPartition, int]] = field(default_factory=dict)
    """The place at which each value was acknowledged, if the answer told."""
    begun: dict[str, Moment] = field(default_factory=dict)
    """The state of the coordinators' logs before it was let in."""
    let_in: Moment | None = None
    """The state of the groups' log at that time: the previous transaction is over."""
    decided: Moment | None = None
    """The state of the decisions' log when its end was answered."""


@dataclass(slots=True)
class Ledger:
    """Everything that the clients know."""

    told: dict[bytes, Told] = field(default_factory=dict)
    transactions: list[Told] = field(default_factory=list)
    newest: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The last (producer id, epoch) given out, by transactional id."""
    given: dict[str, tuple[Moment, Moment]] = field(default_factory=dict)
    """The moments of the decisions' log between which that happened."""
