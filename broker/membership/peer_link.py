"""One connection to another broker, opened when it is needed and again after a loss."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from highwater.kafka.client.connection import ConnectionLost, Pending
from highwater.kafka.client.reconnecting import Reconnecting
from highwater.kafka.wire.codec import encode_request
from highwater.kafka.wire.messages import ApiVersionsRequest

if TYPE_CHECKING:
    from highwater.broker.metadata.metadata_cache import MetadataCache
    from highwater.kafka.config import Config
    from highwater.world.api import World

_CONNECT_S = 5.0


class Link:
    """A link to one broker.  Raises OSError, and closes, if the broker cannot be reached."""

    def __init__(
        self,
        config: Config,
        world: World,
        metadata: MetadataCache,
        broker_id: int,
        purpose: str,
        *,
        timeout_ms: int | None = None,
    ) -> None:
        """Connects to the inter-broker listener; the default time-out of a request is
        request.timeout.ms.
        """
        self.broker_id = broker_id
        self.timeout_s = (timeout_ms or config.request_timeout_ms) / 1000
        self._listener = config.parsed_listeners.inter_broker
        self._metadata = metadata
        self._connection = Reconnecting(
            world.network, f"broker-{config.broker_id}-{purpose}", self._address, _CONNECT_S
        )
        self._versions: dict[int, int] | None = None

    async def begin(self, request: Any, version: int) -> Pending:
        connection = await self._connection.open()
        body = encode_request(request, version)
        return await connection.begin(request.API_KEY, version, [body], self.timeout_s)

    async def call(self, request: Any, version: int) -> Any:
        connection = await self._connection.open()
        return await connection.call(request, version, self.timeout_s)

    async def newest_version(self, api_key: int) -> int:
        """The newest version of an API that the broker supports; -1 if it does not know the API."""
        if not self._connection.is_open or self._versions is None:
            answer = await self.call(ApiVersionsRequest(), 0)
            self._versions = {entry.api_key: entry.max_version for entry in answer.api_keys}
        return self._versions.get(api_key, -1)

    def close(self) -> None:
        self._connection.close()

    def _address(self) -> tuple[str, int]:
        endpoint = self._metadata.endpoint_of(self.broker_id, self._listener)
        if endpoint is None:
            raise ConnectionLost(f"broker {self.broker_id} is not alive")
        self._versions = None  # the broker may run another version by now
        return endpoint.host, endpoint.port
