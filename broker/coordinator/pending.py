"""What waits in the purgatory: a client for its answer, and a write for the HW."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from itertools import count
from typing import Any, ClassVar

from highwater.broker.coordinator.shard import PendingWrite
from highwater.broker.request.purgatory import DelayedOperation
from highwater.broker.request.response import Response
from highwater.kafka.errors import ApiError, ErrorCode

NO_TIMEOUT_MS = 2**31 - 1
"""The group's own timers end every wait."""
_numbers = count()


class Waiting(DelayedOperation):
    """A ticket for a request: a coordinator answers it, and `render` builds the response."""

    kind: ClassVar[str] = "Rebalance"

    def __init__(self, render: Callable[[Any], Response]) -> None:
        self.keys: Sequence[Hashable] = (next(_numbers),)
        self.timeout_ms = NO_TIMEOUT_MS
        self.render = render
        self.answer: object | None = None

    def try_complete(self) -> Response | None:
        return None if self.answer is None else self.render(self.answer)

    def on_expire(self) -> Response:
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT)


class DelayedWrite(DelayedOperation):
    """Waits as an acks=all Produce to the same partition does."""

    kind: ClassVar[str] = "Produce"

    def __init__(
        self,
        key: Hashable,
        pending: PendingWrite[Any, Any],
        timeout_ms: int,
        advance: Callable[[], None],
        settle: Callable[[ErrorCode], None],
    ) -> None:
        self.keys: Sequence[Hashable] = (key,)
        self.timeout_ms = timeout_ms
        self.pending = pending
        self.advance = advance
        self.settle = settle

    def try_complete(self) -> Response | None:
        if not self.pending.settled:
            self.advance()
        return Response() if self.pending.settled else None

    def on_expire(self) -> Response:
        self.settle(ErrorCode.REQUEST_TIMED_OUT)
        return Response()
