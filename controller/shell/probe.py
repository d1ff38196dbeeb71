"""Probes whether the process behind a broker's registration is alive (the shell of `suspicion`).

A probe is a fresh connection and one ApiVersions request on it, both within
highwater.broker.probe.ms.  A connection that answered is kept open: its end is the first sign that
the process is gone.
"""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import trio

from highwater.kafka.client.connection import ClientConnection

if TYPE_CHECKING:
    from highwater.kafka.types import Endpoint
    from highwater.world.api import Network

_API_VERSIONS = 18


@dataclass(frozen=True, slots=True)
class Silence:
    """No answer; `refused` if the host said that no process listens."""

    refused: bool


async def probe(
    network: Network, endpoint: Endpoint, client_id: str, within_ms: int
) -> ClientConnection | Silence:
    connection: ClientConnection | None = None
    try:
        with trio.fail_after(within_ms / 1000):
            connection = await ClientConnection.open(
                network, endpoint.host, endpoint.port, client_id, timeout_s=within_ms / 1000
            )
            await connection.call_raw(_API_VERSIONS, 0, [b""], within_ms / 1000)
            return connection
    except (OSError, trio.TooSlowError) as e:
        if connection is not None:
            connection.close()
        return Silence(getattr(e, "errno", None) == errno.ECONNREFUSED)
    except BaseException:
        if connection is not None:
            connection.close()
        raise


async def watch(
    dial: Callable[[], Awaitable[ClientConnection | Silence]],
    pause_ms: int,
    *,
    connected: Callable[[], None],
    lost: Callable[[], None],
    failed: Callable[[bool], None],
) -> None:
    """Keeps a connection to one broker, and reports on it; ends only when cancelled."""
    while True:
        answer = await dial()
        if isinstance(answer, Silence):
            failed(answer.refused)
            await trio.sleep(pause_ms / 1000)
            continue
        connected()
        try:
            await answer.wait_closed()
        finally:
            answer.close()
        lost()
