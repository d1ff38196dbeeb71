"""The arguments and results of request handlers.

There is one handler file for each API key, all of one shape: `API` says which requests it takes,
and `handle(ctx, request)` returns a `Reply` (or awaits one, where ZooKeeper must be asked: that
occupies one of num.io.threads' tasks, as it occupies a thread in Kafka).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from highwater.broker.request.response import NoResponse, Response

if TYPE_CHECKING:
    from highwater.broker.request.purgatory import DelayedOperation
    from highwater.broker.services import Services


class Plane(Enum):
    """One of the two complete sets of queues and tasks; a request belongs to one (KIP-291)."""

    DATA = "data"
    CONTROL = "control"


@dataclass(frozen=True, slots=True)
class Api:
    """One API: its key, the versions answered (both ends included), the plane it may arrive on.

    `raw` hands the handler the body as a memoryview instead of a decoded message (Produce, Fetch).
    A CONTROL API is served on the data plane too where control.plane.listener.name is empty.
    """

    key: int
    name: str
    versions: tuple[int, int]
    plane: Plane = Plane.DATA
    raw: bool = False


@dataclass(frozen=True, slots=True)
class Delayed:
    """The answer comes from a delayed operation; the purgatory of its kind watches its keys and its
    time-out.
    """

    operation: DelayedOperation


Reply = Response | NoResponse | Delayed


@dataclass(slots=True)
class Context:
    """The requester, its connection, and the broker's services."""

    api: Api
    version: int
    correlation_id: int
    client_id: str | None
    principal: str
    listener: str
    security_protocol: str
    peer: tuple[str, int]
    connection_id: str
    plane: Plane
    now_ms: int
    """Monotonic milliseconds (trio's clock)."""
    services: Services
    client_software: tuple[str, str] = ("unknown", "unknown")
    connection_number: int = 0
    """Greater than that of any connection accepted before."""


Handler = Callable[[Context, Any], Reply | Awaitable[Reply]]
