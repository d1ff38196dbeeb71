"""Listeners that a harness lends to this broker, and the connections that go back with them.

While it has no fault to put between the members of its cluster, a harness lets each broker listen
at the ports that it advertises (`world.api.Loan`).  When the harness recalls them, it comes to
stand between this broker and every client that came through them, and no client notices.  Each
connection gets another socket, in one step of the loop.  The harness gets the old one, and is told
what it would know if it had been there from the beginning: whose connection it is, which requests
are not answered, and how much of an answer is still to come.  What had arrived of the next requests
goes back, so that the harness reads them from their first byte on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import trio

from highwater.kafka.wire.produce_head import read_head

if TYPE_CHECKING:
    from highwater.broker.network.connection import BrokerConnection, ListenerInfo
    from highwater.broker.network.request import Request
    from highwater.world.api import Loan, Network

log = logging.getLogger(__name__)

_PRODUCE = 0
_READABLE = "PLAINTEXT", "SASL_PLAINTEXT"
"""The protocols whose bytes a harness can read."""


async def borrowed(network: Network, own: Mapping[str, ListenerInfo]) -> Loan | None:
    """What the harness lends, if it can all be used: by names of this broker's own listeners."""
    borrow = getattr(network, "borrow", None)
    loan: Loan | None = await borrow() if borrow is not None else None
    if loan is None:
        return None
    for name, _ in loan.listeners:
        if name not in own or own[name].security_protocol not in _READABLE:
            loan.close()
            return None
    return loan


async def give_back(loan: Loan, connections: Callable[[], Sequence[BrokerConnection]]) -> None:
    """Waits until the loan is recalled, and then hands everything over."""
    try:
        await loan.recalled()
        for _, listener in loan.listeners:
            listener.close()
        for connection in connections():
            if connection.listener.lent and not connection.closed:
                await _hand_over(loan, connection)
    except (OSError, trio.ClosedResourceError) as exc:
        log.debug("the loan of listeners ended: %s", exc)
    finally:
        loan.close()


async def _hand_over(loan: Loan, connection: BrokerConnection) -> None:
    """One that cannot be handed over is closed: no fault could touch it."""
    try:
        about = _about(connection)
        descriptors, unread = connection.processor.exchange(connection, loan)
        await loan.hand_over(descriptors, about, unread)
    except OSError as exc:
        log.warning("closing connection %s: it cannot be handed over: %s", connection.id, exc)
        connection.processor.close(connection)


def _about(connection: BrokerConnection) -> dict[str, Any]:
    unanswered = list(connection.pending)[connection.leaving :]
    return {
        "listener": connection.listener.name,
        "client_id": connection.client_id,
        "unanswered": [
            (request.correlation_id, request.api_key, request.api_version, request.client_id)
            for request in unanswered
            if not _silent(request)
        ],
        "unsent": connection.unsent,
    }


def _silent(request: Request) -> bool:
    """Whether it gets no answer, as a Produce request with acks=0."""
    if request.answered:
        return request.parts is None
    if request.api_key != _PRODUCE or request.body is None:
        return False
    head = read_head(request.api_version, request.body)
    return head is not None and head.acks == 0
