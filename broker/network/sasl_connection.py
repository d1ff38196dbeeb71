"""A connection of a SASL listener: it checks that each request is allowed before others see it.

Connections of other listeners have no such step at all.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from highwater.base.event_loop import monotonic_ms
from highwater.broker.network.connection import BrokerConnection, Frame, FrameError, ListenerInfo
from highwater.kafka.security.authentication import Authentication

if TYPE_CHECKING:
    from highwater.broker.network.processor import Processor
    from highwater.world.api import Connection

log = logging.getLogger(__name__)

STRANGER_MS = 30_000
"""How long a connection may stay unauthenticated."""


class SaslConnection(BrokerConnection):
    """Takes only small requests until its client is known."""

    __slots__ = ("_machine", "_max_frame")

    def __init__(
        self,
        connection: Connection,
        listener: ListenerInfo,
        processor: Processor,
        max_frame: int,
        index: int,
        machine: Authentication,
        wire: Connection | None = None,
    ) -> None:
        most = min(machine.settings.max_receive, max_frame)
        super().__init__(connection, listener, processor, most, index, wire)
        self.authentication = self._machine = machine
        self._max_frame = max_frame

    def close_stranger(self) -> None:
        """Closes the connection, unless its client has authenticated."""
        if not self.closed and not self._machine.known:
            log.info("closing connection %s: it did not authenticate", self.id)
            self.processor.close(self)

    def _describe(self, size: int, start: bytes) -> str:
        text = super()._describe(size, start)
        if self._machine.known:
            return text
        return text.replace("socket.request.max.bytes", "sasl.server.max.receive.size")

    def next_frame(self, scratch: bytearray, view: memoryview) -> Frame | None:
        """As in any connection, but raises FrameError for a request that is not allowed now."""
        machine = self._machine
        if machine.complete:
            # the answer that made it complete has left, so that this is the next request
            self.principal, self.max_frame = machine.principal, self._max_frame
        frame = super().next_frame(scratch, view)
        if frame is not None and len(frame) >= 2:
            problem = machine.refuses(int.from_bytes(frame[:2], "big"), monotonic_ms())
            if problem is not None:
                raise FrameError(problem)
        return frame
