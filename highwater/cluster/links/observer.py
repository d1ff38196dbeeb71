"""An observer of the traffic that a proxy passes on."""

from __future__ import annotations

from typing import Protocol

from highwater.kafka.wire.header import RequestHeader


class Observer(Protocol):
    """Is told of each connection, by a number of its own; must neither fail nor take long.

    `whole`: a body may be cut short, where it is large.
    """

    def begun(self, connection: int, owner: str, first: bytes) -> None:
        """A connection to a member, and its first bytes, which need be none of Kafka's."""

    def unreachable(self, connection: int, owner: str, why: str) -> None:
        """The member itself could not be connected to."""

    def asked(
        self, connection: int, header: RequestHeader, body: memoryview, *, whole: bool
    ) -> None: ...

    def answered(
        self, connection: int, api_key: int, version: int, body: memoryview, *, whole: bool
    ) -> None: ...

    def hung_up(self, connection: int) -> None:
        """The member ended the connection, not the client and not the proxy; `ended` follows."""

    def ended(self, connection: int) -> None: ...
