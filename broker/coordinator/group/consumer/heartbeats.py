"""Members' requests to a consumer group and its answers, independent of the API's versions.

Source: GroupCoordinatorService.throwIfConsumerGroupHeartbeatRequestIsInvalid of Kafka.
"""

from __future__ import annotations

from dataclasses import dataclass

from highwater.broker.coordinator.group.consumer.members import (
    AWAY,
    LEFT,
    Partitions,
    Subscription,
)
from highwater.broker.coordinator.group.consumer.migration import MigrationPolicy
from highwater.kafka.config.property_row import INT_MAX
from highwater.kafka.errors import ApiError, ErrorCode

FIRST_WITH_OWN_IDS = 1


@dataclass(frozen=True, slots=True)
class Limits:
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_size: int
    assignors: tuple[str, ...]
    """The first one is used where no member asks for one."""
    regex_refresh_ms: int = 600_000
    policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    classic_max_size: int = INT_MAX
    """How many members a group of the classic protocol may have."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A request; None stands for what has not changed since the last one."""

    member_id: str
    epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topics: tuple[str, ...] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: Partitions | None = None
    client_id: str = ""
    client_host: str = ""

    @property
    def leaves(self) -> bool:
        return self.epoch in (LEFT, AWAY)

    @property
    def is_full(self) -> bool:
        """Whether it says all that a member can say, as after an error."""
        names_topics = self.topics is not None or self.regex is not None
        return self.rebalance_timeout_ms != -1 and names_topics and self.owned is not None


@dataclass(frozen=True, slots=True)
class Beat:
    """An answer; without an assignment, the member's has not changed."""

    error: ErrorCode
    member_id: str | None = None
    epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Partitions | None = None
    message: str | None = None


def check(request: Heartbeat, version: int, known: tuple[str, ...]) -> None:
    """Raises ApiError for a request that is none, whatever the group is."""
    if (version >= FIRST_WITH_OWN_IDS or request.epoch > 0 or request.epoch == LEFT) and (
        not request.member_id
    ):
        _invalid("MemberId can't be empty; make one up, and keep it while the member lives")
    for name, text in (("InstanceId", request.instance_id), ("RackId", request.rack_id)):
        if text is not None and not text.strip():
            _invalid(f"{name} can't be empty; leave it out, or set it")
    if request.epoch == 0:
        if request.rebalance_timeout_ms == -1:
            _invalid("RebalanceTimeoutMs must be set in a member's first request")
        if request.owned is None or request.owned:
            _invalid("TopicPartitions must be empty when a member joins")
        if request.topics is None and request.regex is None:
            _invalid("SubscribedTopicNames or SubscribedTopicRegex must be set to join")
    elif request.epoch == AWAY:
        if request.instance_id is None:
            _invalid("InstanceId can't be null where a static member leaves for a while")
    elif request.epoch < LEFT:
        _invalid(f"MemberEpoch {request.epoch} is none; join with 0, or leave with -1 or -2")
    if request.assignor is not None and request.assignor not in known:
        raise ApiError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"the assignor {request.assignor} is not supported; choose one of {', '.join(known)}",
        )


def updated(before: Subscription, request: Heartbeat) -> Subscription:
    """The subscription with what the request says."""

    def new(value: str | None, known: str | None) -> str | None:
        return known if value is None else value

    return Subscription(
        new(request.instance_id, before.instance_id),
        new(request.rack_id, before.rack_id),
        request.client_id,
        request.client_host,
        before.topics if request.topics is None else tuple(sorted(set(request.topics))),
        before.regex if request.regex is None else request.regex,
        before.rebalance_timeout_ms
        if request.rebalance_timeout_ms == -1
        else request.rebalance_timeout_ms,
        new(request.assignor, before.assignor),
    )


def _invalid(detail: str) -> None:
    raise ApiError(ErrorCode.INVALID_REQUEST, detail)
