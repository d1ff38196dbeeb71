"""Finds the member that opened a connection, by the client id of its first request."""

from __future__ import annotations

import re

from highwater.cluster.links.link_rules import CLIENTS, broker
from highwater.kafka.wire.header import BadHeader, parse_request_header

_BROKER_ID = re.compile(
    r"^(?:(?:highwater-)?(?:broker|replica|controller|raft-client)[-_](\d+)(?:\D.*)?|(\d+))$",
    re.IGNORECASE,
)


def source_of(client_id: str | None) -> str:
    """The member that a client id names.

    >>> [source_of(id_) for id_ in ("broker-2-fetcher-0", "controller-1-to-3", "3", "rdkafka")]
    ['broker-2', 'broker-1', 'broker-3', 'clients']
    """
    match = _BROKER_ID.match(client_id or "")
    return broker(int(match.group(1) or match.group(2))) if match else CLIENTS


def client_id_in(head: bytes) -> str | None:
    """The client id in a request's first bytes; None if they are no request, or it has none."""
    try:
        return parse_request_header(memoryview(head)[4:]).client_id
    except BadHeader:
        return None
