"""The bytes in which consumers of the classic protocol subscribe, and are assigned ("consumer
protocol" of Kafka's clients, v0-3).

Brokers pass them on unread, except where a group changes its protocol: then the coordinator assigns
in the leader's place, and must know what a member has.

Source: ConsumerProtocolSubscription, ConsumerProtocolAssignment, ConsumerProtocol of Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from struct import Struct
from struct import error as StructError

from highwater.broker.coordinator.record_fields import Fields

CONSUMER = "consumer"
"""The protocol type of consumers."""
Named = Mapping[str, frozenset[int]]
"""Topic -> partitions."""
_INT16 = Struct(">h")
_INT32 = Struct(">i")
FIRST_WITH_OWNED, FIRST_WITH_GENERATION, FIRST_WITH_RACK = 1, 2, 3
HIGHEST = 3


class MalformedError(ValueError):
    """Raised for bytes that no consumer writes."""


@dataclass(frozen=True, slots=True)
class Subscribed:
    version: int
    topics: tuple[str, ...]
    owned: Named = field(default_factory=dict)
    rack_id: str | None = None


def subscription(data: bytes) -> Subscribed:
    """Reads a member's subscription; raises MalformedError."""
    try:
        fields = Fields(data)
        version = _version(fields)
        topics = tuple(fields.plain_text() for _ in range(fields.number(_INT32)))
        _user_data(fields)
        owned: Named = {}
        rack_id = None
        if version >= FIRST_WITH_OWNED:
            owned = _partitions(fields)
        if version >= FIRST_WITH_GENERATION:
            fields.number(_INT32)
        if version >= FIRST_WITH_RACK:
            rack_id = _nullable(fields)
    except (StructError, ValueError, IndexError) as e:
        raise MalformedError(f"a subscription of {len(data)} bytes: {e}") from e
    return Subscribed(version, topics, owned, rack_id)


def version_of(data: bytes) -> int:
    """The version of a subscription; 0 if it names none."""
    try:
        return _version(Fields(data))
    except (StructError, ValueError):
        return 0


def assignment(data: bytes) -> tuple[Named, bytes]:
    """Reads a member's partitions and what its assignor has added; raises MalformedError.

    A member that has yet to be assigned something has no bytes.
    """
    if not data:
        return {}, b""
    try:
        fields = Fields(data)
        _version(fields)
        return _partitions(fields), _user_data(fields)
    except (StructError, ValueError, IndexError) as e:
        raise MalformedError(f"an assignment of {len(data)} bytes: {e}") from e


def encode_assignment(partitions: Iterable[tuple[str, Iterable[int]]], version: int) -> bytes:
    """An assignment as a client of this version's subscription reads it."""
    named = [(topic.encode(), sorted(numbers)) for topic, numbers in partitions]
    parts = [_INT16.pack(version), _INT32.pack(len(named))]
    for topic, numbers in named:
        parts += (_INT16.pack(len(topic)), topic, _INT32.pack(len(numbers)))
        parts += (_INT32.pack(number) for number in numbers)
    parts.append(_INT32.pack(-1))
    return b"".join(parts)


def _version(fields: Fields) -> int:
    """The version, or the highest that is known: later ones begin alike."""
    version = fields.number(_INT16)
    if version < 0:
        raise ValueError(f"version {version}")
    return min(version, HIGHEST)


def _user_data(fields: Fields) -> bytes:
    size = fields.number(_INT32)
    return b"" if size < 0 else fields.take(size)


def _nullable(fields: Fields) -> str | None:
    size = fields.number(_INT16)
    return None if size < 0 else fields.take(size).decode()


def _partitions(fields: Fields) -> Named:
    found: dict[str, frozenset[int]] = {}
    for _ in range(fields.number(_INT32)):
        topic = fields.plain_text()
        numbers = frozenset(fields.number(_INT32) for _ in range(fields.number(_INT32)))
        if numbers:
            found[topic] = found.get(topic, frozenset()) | numbers
    return found
