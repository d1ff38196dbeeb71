"""A connection to one peer, opened when needed, and reopened after a loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from highwater.kafka.client.connection import ClientConnection

if TYPE_CHECKING:
    from highwater.world.api import Network


class Reconnecting:
    """`open` may have only one caller at a time."""

    def __init__(
        self,
        network: Network,
        client_id: str,
        address: Callable[[], tuple[str, int]],
        timeout_s: float,
    ) -> None:
        """`address` is called before each connect, and may raise OSError."""
        self._network = network
        self._client_id = client_id
        self._address = address
        self._timeout_s = timeout_s
        self._connection: ClientConnection | None = None

    @property
    def is_open(self) -> bool:
        return self._connection is not None and not self._connection.closed

    async def open(self) -> ClientConnection:
        """The existing connection, or a new one; raises OSError."""
        if self._connection is None or self._connection.closed:
            self._connection = await ClientConnection.open(
                self._network, *self._address(), self._client_id, timeout_s=self._timeout_s
            )
        return self._connection

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
