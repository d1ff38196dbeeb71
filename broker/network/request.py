"""One request on its way, with the seven times that Kafka measures.

Each time is the difference of two stamps.  Neighbouring times share a stamp, so that queue, local,
remote, response queue and send add up exactly to the total:

    received | taken by a handler | handled | answer ready | taken by the processor | sent
             queue            local      remote      response queue           send

Throttle time is recorded apart, as in Kafka: the client is muted after the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import TYPE_CHECKING, Any

from highwater.broker.request.response import Extra, FileSlice, Part, Response
from highwater.kafka.wire.codec import encode_response
from highwater.kafka.wire.header import RequestHeader, api_name, response_header

if TYPE_CHECKING:
    from highwater.broker.network.connection import BrokerConnection, Frame
    from highwater.broker.request.request_metrics import ApiMetrics

_SIZE = Struct(">i")


class Request:
    """One request; the stamps are nanoseconds of `World.clock.perf_ns`."""

    __slots__ = (
        "answered",
        "api_key",
        "api_version",
        "body",
        "client_id",
        "connection",
        "correlation_id",
        "error_names",
        "extra",
        "handled",
        "logged",
        "merge",
        "metrics",
        "overlaps",
        "parts",
        "ready",
        "received",
        "returned",
        "size",
        "taken",
        "taken_back",
        "then_close",
        "throttle_ms",
    )

    def __init__(
        self,
        connection: BrokerConnection,
        header: RequestHeader,
        frame: Frame,
        received: int,
    ) -> None:
        self.connection = connection
        self.api_key, self.api_version, self.correlation_id, self.client_id, position = header
        self.size = len(frame)
        self.body: memoryview | None = memoryview(frame)[position:]
        self.received = received
        self.taken = 0
        self.handled = 0
        self.ready = 0
        self.taken_back = 0
        self.answered = False
        self.overlaps = False
        """Whether it waits only for its replicas: the connection's next may be handled."""
        self.returned = False
        """Whether its processor has taken the answer out of the response queue."""
        self.parts: list[Part] | None = None
        self.extra: Extra | None = None
        self.then_close = False
        self.throttle_ms = 0
        self.error_names: tuple[str, ...] = ()
        self.metrics: tuple[ApiMetrics, ...] = ()
        self.merge: Callable[[Response], Response] | None = None
        """Adds the answers for the items that the client may not have."""
        self.logged: dict[str, Any] | None = None
        """The request's line in the request log, if that log is on."""

    def __str__(self) -> str:
        name = api_name(self.api_key)
        return f"{name} v{self.api_version} ({self.size} bytes) from {self.connection.id}"

    @property
    def waits(self) -> bool:
        """Whether the request is in the purgatory."""
        return bool(self.handled) and not self.answered

    def set_response(self, response: Response) -> None:
        """Encodes the answer; the frame is whole after this."""
        body: Sequence[Part]
        if response.parts is not None:
            body = response.parts
        else:
            body = (encode_response(response.message, self.api_version),)
        self.set_body(body)
        self.then_close = response.then_close
        self.throttle_ms = response.throttle_ms
        self.error_names = response.error_names
        self.extra = response.extra

    def set_body(self, body: Sequence[Part]) -> None:
        header = response_header(self.api_key, self.api_version, self.correlation_id)
        size = len(header)
        for part in body:
            size += part.size if type(part) is FileSlice else len(part)  # type: ignore[arg-type]
        self.parts = [_SIZE.pack(size) + header, *body]
