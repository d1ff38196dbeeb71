"""The arguments and results of request handlers.

There is one handler file for each API key, all of one shape: `API` says which requests it takes and
what their clients must be allowed, and `handle(ctx, request)` returns a `Reply` (or awaits one,
where ZooKeeper must be asked: that occupies one of num.io.threads' tasks, as it occupies a thread
in Kafka).
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from highwater.broker.request.response import NoResponse, Response
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.security.acls import CLUSTER_NAME, DENIED, SUPPORTED, Operation, ResourceType

if TYPE_CHECKING:
    from highwater.broker.replica.feed import Feed
    from highwater.broker.request.purgatory import DelayedOperation
    from highwater.broker.services import Services
    from highwater.kafka.security.authentication import Authentication


class Plane(Enum):
    """One of the two complete sets of queues and tasks; a request belongs to one (KIP-291)."""

    DATA = "data"
    CONTROL = "control"


class Need(NamedTuple):
    """An operation on a resource; a name of None means any resource of the type."""

    operation: Operation
    type: ResourceType
    name: str | None = CLUSTER_NAME


Needs = Callable[[Any, Any], Sequence[Need]]
"""From an item and its request to the rights, one of which is needed (none: nothing is)."""


def of(kind: ResourceType, operation: Operation, attribute: str = "") -> Needs:
    """One operation on the resource that the item names; on none where the name is null."""

    def needs(item: Any, _: Any) -> Sequence[Need]:
        name = item if isinstance(item, str) else getattr(item, attribute)
        return () if name is None else (Need(operation, kind, name),)

    return needs


def cluster(*operations: Operation) -> Needs:
    needed = [Need(operation, ResourceType.CLUSTER) for operation in operations]
    return lambda _, __: needed


def either(first: Needs, second: Needs) -> Needs:
    return lambda item, request: (*first(item, request), *second(item, request))


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The rights that a client needs, where there is an authorizer; a denial has its type's code.

    `whole`: without one of them the whole request is refused.  `each` is needed for each item of
    the request's list `items`: those that are refused are answered by the handler's `refused` (or
    `error_response`), and join the others' answers in the list `answers`.  `inside` says what else
    the handler itself asks for.
    """

    whole: tuple[Needs, ...] = ()
    each: Needs | None = None
    items: tuple[str, ...] = ()
    """Which of these fields the version has."""
    answers: str = ""
    named: Callable[[Context, Any], None] | None = None
    """Gives items that are named by topic ids their names, before `each` looks at them."""
    by_controller: bool = False
    """Another broker asks for nothing, as it answers NOT_CONTROLLER."""
    inside: str = ""

    def split(self, ctx: Context, request: Any) -> tuple[Any, list[tuple[ErrorCode, Any]]]:
        """The request without its refused items (None: nothing is left), and those, by code;
        raises ApiError."""
        if self.by_controller and not ctx.services.is_controller:
            return request, []
        for needs in self.whole:
            if code := ctx.refusal(needs(request, request)):
                raise ApiError(code)
        if self.each is None:
            return request, []
        if self.named is not None:
            self.named(ctx, request)
        field = next((f for f in self.items if getattr(request, f)), self.items[0])
        parts: dict[ErrorCode, list[Any]] = {}
        for item in getattr(request, field) or ():
            parts.setdefault(ctx.refusal(self.each(item, request)), []).append(item)
        allowed = parts.pop(ErrorCode.NONE, None)
        if not parts:
            return request, []
        refused = [(code, _with(request, field, items)) for code, items in parts.items()]
        return _with(request, field, allowed) if allowed else None, refused

    def merged(self, responses: Sequence[Response]) -> Response:
        """One answer of several; where the first one failed as a whole, that is all."""
        first = responses[0]
        if getattr(first.message, "error_code", 0):
            return first
        items = [i for r in responses for i in getattr(r.message, self.answers)]
        setattr(first.message, self.answers, items)
        names = dict.fromkeys(name for r in responses for name in r.error_names)
        return replace(first, error_names=tuple(names))


def _with(request: Any, field: str, items: list[Any]) -> Any:
    changed = copy.copy(request)
    setattr(changed, field, items)
    return changed


OPEN = Access()


@dataclass(frozen=True, slots=True)
class Api:
    """One API: its key, the versions answered (both ends included), what its clients must be
    allowed, the plane it may arrive on.

    `raw` hands the handler the body as a memoryview instead of a decoded message (Produce, Fetch).
    A CONTROL API is served on the data plane too where control.plane.listener.name is empty.
    """

    key: int
    name: str
    versions: tuple[int, int]
    access: Access
    plane: Plane = Plane.DATA
    raw: bool = False


@dataclass(frozen=True, slots=True)
class Delayed:
    """The answer comes from a delayed operation; the purgatory of its kind watches its keys and its
    time-out.
    """

    operation: DelayedOperation


@dataclass(frozen=True, slots=True)
class Feeding:
    """The answer to a follower's fetch comes from its feed, which has taken the request."""

    feed: Feed


Reply = Response | NoResponse | Delayed | Feeding


class Listener(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def security_protocol(self) -> str: ...


class Requester(Protocol):
    """The connection of a request (`network.connection.BrokerConnection`)."""

    @property
    def listener(self) -> Listener: ...

    @property
    def peer(self) -> tuple[str, int]: ...

    @property
    def id(self) -> str: ...

    @property
    def index(self) -> int: ...

    @property
    def authentication(self) -> Authentication | None: ...


@dataclass(slots=True)
class Context:
    """The requester, its connection, and the broker's services."""

    api: Api
    version: int
    client_id: str | None
    principal: str
    """As it was when the request was taken."""
    connection: Requester
    now_ms: int
    """Monotonic milliseconds (trio's clock)."""
    services: Services

    @property
    def listener(self) -> str:
        return self.connection.listener.name

    @property
    def security_protocol(self) -> str:
        return self.connection.listener.security_protocol

    @property
    def peer(self) -> tuple[str, int]:
        return self.connection.peer

    @property
    def connection_id(self) -> str:
        return self.connection.id

    @property
    def connection_number(self) -> int:
        """Greater than that of any connection accepted before."""
        return self.connection.index

    @property
    def authentication(self) -> Authentication | None:
        """The connection's, where its listener uses SASL."""
        return self.connection.authentication

    @property
    def by_token(self) -> bool:
        """Whether the requester logged in by a delegation token."""
        return self.authentication is not None and self.authentication.by_token

    def allows(
        self, operation: Operation, kind: ResourceType, name: str | None = CLUSTER_NAME
    ) -> bool:
        """Whether the requester may do this; None: to any resource of the type."""
        authorizer = self.services.authorizer
        if authorizer is None:
            return True
        if name is None:
            return authorizer.allows_some(self.principal, self.peer[0], operation, kind)
        return authorizer.allows(self.principal, self.peer[0], operation, kind, name)

    def refusal(self, needs: Sequence[Need]) -> ErrorCode:
        """NONE if one of them is allowed, or nothing is needed; else the last one's code."""
        if not needs or any(self.allows(*need) for need in needs):
            return ErrorCode.NONE
        return DENIED[needs[-1].type]

    def operations(self, kind: ResourceType, name: str = CLUSTER_NAME) -> set[int]:
        """All that the requester may do with a resource, by Kafka's numbers."""
        return {op for op in SUPPORTED[kind] if self.allows(Operation(op), kind, name)}


Handler = Callable[[Context, Any], Reply | Awaitable[Reply]]


def operations_of_cluster(ctx: Context) -> set[int]:
    """All that the requester may do with the cluster, if it may describe it."""
    if not ctx.allows(Operation.DESCRIBE, ResourceType.CLUSTER):
        return set()
    return ctx.operations(ResourceType.CLUSTER)
