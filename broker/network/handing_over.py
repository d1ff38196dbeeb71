"""Gives back to a harness the listeners that it lent to this broker, and their connections.

While a harness has no fault to put between the members of its cluster, it lets each broker listen
at the ports that the broker advertises (`world.api.Loan`).  When the harness recalls them, it comes
between this broker and every client that came through them, and no client notices.  In one step of
the loop each connection gets another socket.  The harness gets the old one, and learns what it
would know if it had been there from the beginning: whose connection it is, which requests are not
answered, and how much of an answer is still to come.  Bytes of further requests that had arrived go
back, so that the harness reads those requests from their first byte on.
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
    """The harness's loan, if this broker can use all of its listeners (names as in `own`)."""
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
    """Waits until the loan is recalled, then hands everything over."""
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
    """Hands a connection over; closes it if it cannot, since no fault could reach it."""
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
    """Whether the request gets no answer, like a Produce with acks=0."""
    if request.answered:
        return request.parts is None
    if request.api_key != _PRODUCE or request.body is None:
        return False
    head = read_head(request.api_version, request.body)
    return head is not None and head.acks == 0
