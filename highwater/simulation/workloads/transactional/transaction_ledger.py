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
        """Whether a commit was requested, and may have taken place."""
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
    """What the producer read under read_committed before the transaction's end."""
    places: dict[bytes, tuple[TopicPartition, int]] = field(default_factory=dict)
    """Value -> the place at which it was acknowledged, if the answer had one."""
    begun: dict[str, Moment] = field(default_factory=dict)
    """The states of the coordinators' logs before the transaction could begin."""
    let_in: Moment | None = None
    """The state of the groups' log when it could begin: the previous transaction was over."""
    decided: Moment | None = None
    """The state of the decisions' log when the request to end it was answered."""


@dataclass(slots=True)
class Ledger:
    """Everything that the clients know."""

    told: dict[bytes, Told] = field(default_factory=dict)
    transactions: list[Told] = field(default_factory=list)
    newest: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Transactional id -> the last (producer id, epoch) that was given out."""
    given: dict[str, tuple[Moment, Moment]] = field(default_factory=dict)
    """The moments of the decisions' log between which that happened."""
