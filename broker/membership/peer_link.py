"""One connection to another broker, opened when it is needed and again after it was lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from highwater.kafka.client.connection import ClientConnection, ConnectionLost, Pending
from highwater.kafka.wire.codec import encode_request
from highwater.kafka.wire.messages import ApiVersionsRequest

if TYPE_CHECKING:
    from highwater.broker.metadata.metadata_cache import MetadataCache
    from highwater.kafka.config import Config
    from highwater.world.api import World

_CONNECT_S = 5.0


class Link:
    """Raises OSError where the broker cannot be reached, and is closed then."""

    def __init__(
        self, config: Config, world: World, metadata: MetadataCache, broker_id: int, purpose: str
    ) -> None:
        self.broker_id = broker_id
        self.timeout_s = config.request_timeout_ms / 1000
        self._listener = config.parsed_listeners.inter_broker
        self._world = world
        self._metadata = metadata
        self._client_id = f"broker-{config.broker_id}-{purpose}"
        self._connection: ClientConnection | None = None
        self._versions: dict[int, int] | None = None

    async def begin(self, request: Any, version: int) -> Pending:
        connection = await self._open()
        body = encode_request(request, version)
        return await connection.begin(request.API_KEY, version, [body], self.timeout_s)

    async def call(self, request: Any, version: int) -> Any:
        connection = await self._open()
        return await connection.call(request, version, self.timeout_s)

    async def newest_version(self, api_key: int) -> int:
        """Of an API that the broker speaks; -1 where it does not know it."""
        if self._connection is None or self._connection.closed or self._versions is None:
            answer = await self.call(ApiVersionsRequest(), 0)
            self._versions = {entry.api_key: entry.max_version for entry in answer.api_keys}
        return self._versions.get(api_key, -1)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _open(self) -> ClientConnection:
        if self._connection is None or self._connection.closed:
            endpoint = self._metadata.endpoint_of(self.broker_id, self._listener)
            if endpoint is None:
                raise ConnectionLost(f"broker {self.broker_id} is not alive")
            self._versions = None
            self._connection = await ClientConnection.open(
                self._world.network,
                endpoint.host,
                endpoint.port,
                self._client_id,
                timeout_s=_CONNECT_S,
            )
        return self._connection
