"""Single requests to a broker by the trio client: whether it serves, its brokers and leaders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio

from highwater.kafka.client.connection import ClientConnection
from highwater.kafka.wire import messages
from highwater.kafka.wire.codec import BadMessage
from highwater.world.real.network import RealNetwork

if TYPE_CHECKING:
    from highwater.world.api import Network

_NETWORK: Network = RealNetwork()
METADATA_VERSION = 7
PATIENT_S = 10.0
"""The timeout for callers that repeat a request until it is answered.  A new connection is slow
where it needs TLS and a login: on a busy machine no attempt of two seconds might ever succeed."""


async def ask(
    address: tuple[str, int],
    request: Any,
    version: int,
    timeout_s: float = 2.0,
    network: Network = _NETWORK,
) -> Any:
    """One request on a connection of its own; raises OSError."""
    host, port = address
    connection = await ClientConnection.open(
        network, host, port, "highwater-harness", timeout_s=timeout_s
    )
    try:
        return await connection.call(request, version, timeout_s)
    finally:
        connection.close()


async def metadata(
    address: tuple[str, int],
    topics: list[str] | None = None,
    timeout_s: float = 2.0,
    network: Network = _NETWORK,
) -> Any:
    """Metadata v7 (brokers, controller, topics with leader epochs); None asks for all topics."""
    named = (
        None
        if topics is None
        else [messages.MetadataRequest.MetadataRequestTopic(name=t) for t in topics]
    )
    request = messages.MetadataRequest(
        topics=named,
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )
    return await ask(address, request, METADATA_VERSION, timeout_s, network)


async def brokers_known(address: tuple[str, int]) -> set[int]:
    """The brokers in this broker's metadata; empty if it does not answer, or knows no controller
    yet (before a controller's first UpdateMetadata it names only itself)."""
    try:
        answer = await metadata(address, [], PATIENT_S)
    except (OSError, BadMessage, trio.BrokenResourceError):
        return set()
    if answer.controller_id < 0:
        return set()
    return {broker.node_id for broker in answer.brokers}
