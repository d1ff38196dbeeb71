"""Answers a step of an authentication; if the step failed, it answers late, to slow guessing.

The late answer waits in the purgatory, where it occupies no handler.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, ClassVar

from highwater.broker.request.purgatory import DelayedOperation
from highwater.broker.request.response import Response
from highwater.kafka.errors import ErrorCode

if TYPE_CHECKING:
    from highwater.kafka.security.authentication import Answer, Authentication

log = logging.getLogger(__name__)


class FailedAuthentication(DelayedOperation):
    """A late answer: nothing completes it, it expires, and then the connection is closed."""

    __slots__ = ("_response",)
    kind: ClassVar[str] = "FailedAuthentication"

    def __init__(self, response: Response, delay_ms: int) -> None:
        self.keys = ()
        self.timeout_ms = delay_ms
        self._response = response

    def try_complete(self) -> Response | None:
        return None

    def on_expire(self) -> Response:
        return self._response


def answered(
    connection_id: str, machine: Authentication, answer: Answer, message: Any
) -> Response | FailedAuthentication:
    """The answer, or for a failure the operation that gives the answer later."""
    if answer.code is ErrorCode.NONE:
        return Response(message)
    response = Response(message, error_names=(answer.code.name,), then_close=bool(answer.log))
    if not answer.log:  # out of turn, from a client that is known
        return response
    log.info("connection %s: %s", connection_id, answer.log)
    return FailedAuthentication(response, machine.settings.failure_delay_ms)
