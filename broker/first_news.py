"""The wait of a request for the controller's first message after this broker's start.

Before it the broker knows neither the cluster nor the features in use.  A client that was told so
would go on from there: librdkafka concludes that no broker is left to ask, and the Java client
that there is no consumer protocol, for which it ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from highwater.broker.context import Context
from highwater.broker.metadata.metadata_cache import FIRST_NEWS, FIRST_NEWS_MS
from highwater.broker.request.purgatory import DelayedOperation
from highwater.broker.request.response import Response


class FirstNewsWait(DelayedOperation):
    """Answers when the controller has named the cluster, or FIRST_NEWS_MS later without."""

    kind: ClassVar[str] = "topic"
    keys = (FIRST_NEWS,)
    timeout_ms = FIRST_NEWS_MS

    def __init__(self, ctx: Context, answer: Callable[[], Response]) -> None:
        self.ctx = ctx
        self.answer = answer

    def try_complete(self) -> Response | None:
        return self.answer() if self.ctx.services.metadata.told else None

    def on_expire(self) -> Response:
        return self.answer()
