"""Members' requests to a group, and its answers, independent of the API's versions."""

from __future__ import annotations

from dataclasses import dataclass

from highwater.kafka.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class Limits:
    initial_delay_ms: int
    max_size: int
    new_member_ms: int = 5 * 60 * 1000
    """The session of a new member that waits in JoinGroup: it cannot send heartbeats, and its
    connection is not read.
    """


@dataclass(frozen=True, slots=True)
class Join:
    """A JoinGroup request; `new_id` is the member id for a newcomer."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    new_id: str
    needs_known_id: bool
    may_skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class Joined:
    """An answer to JoinGroup; only the leader gets `members` (id, instance id, subscription)."""

    error: ErrorCode
    member_id: str
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    members: tuple[tuple[str, str | None, bytes], ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class Sync:
    """A SyncGroup request; only the leader's has assignments."""

    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol: str | None
    assignments: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class Synced:
    error: ErrorCode
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""
