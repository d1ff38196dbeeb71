"""An observer of the traffic that a proxy passes on."""

from __future__ import annotations

from typing import Protocol

from highwater.kafka.wire.header import RequestHeader


class Observer(Protocol):
    """Is called about each connection, which has a number; must neither fail nor take long.

    `whole`: whether the body is complete; a large one may be cut short.
    """

    def begun(self, connection: int, owner: str, first: bytes) -> None:
        """A new connection to a member, with its first bytes, which may be no Kafka request."""

    def unreachable(self, connection: int, owner: str, why: str) -> None:
        """The proxy could not connect to the member."""

    def asked(
        self, connection: int, header: RequestHeader, body: memoryview, *, whole: bool
    ) -> None: ...

    def answered(
        self, connection: int, api_key: int, version: int, body: memoryview, *, whole: bool
    ) -> None: ...

    def hung_up(self, connection: int) -> None:
        """The member ended the connection, not the client and not the proxy; `ended` follows."""

    def ended(self, connection: int) -> None: ...
