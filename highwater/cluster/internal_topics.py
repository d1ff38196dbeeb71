"""__consumer_offsets and __transaction_state, made while every broker is there.

Kafka makes each of them when the first client asks for a coordinator, with as many replicas as
*.replication.factor says, and refuses while fewer brokers are alive.  A test that kills a broker
and then starts its first consumer group would wait for the broker.  So the code that starts a
cluster for users asks for a coordinator of each kind once; the brokers do the rest as always.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

import trio

from highwater.child_processes import StartError
from highwater.cluster.ask import ask
from highwater.kafka.client.retries import RETRIABLE, code_of
from highwater.kafka.errors import ErrorCode
from highwater.kafka.wire.messages import FindCoordinatorRequest

FACTORS = ("offsets.topic.replication.factor", "transaction.state.log.replication.factor")
_KINDS = {0: "__consumer_offsets", 1: "__transaction_state"}
"""FindCoordinator's key types: groups, transactional ids."""
_VERSION = 2
_POLL_S = 0.01


class Brokers(Protocol):
    @property
    def brokers(self) -> Iterable[int]: ...

    def address(self, number: int) -> tuple[str, int]: ...


def properties(factor: int) -> dict[str, str]:
    """Properties with as many replicas as a cluster of `factor` brokers has room for."""
    return {
        **dict.fromkeys(FACTORS, str(factor)),
        "transaction.state.log.min.isr": str(min(2, factor)),
    }


def require_room(given: Mapping[str, str], brokers: int) -> None:
    """Raises StartError where these properties need more replicas than there are brokers."""
    for name in FACTORS:
        wanted = given.get(name, "1")
        if wanted.isdigit() and int(wanted) > brokers:
            raise StartError(
                f"{name}={wanted}, and there are to be {brokers} brokers:"
                " start more, or ask for fewer replicas"
            )


async def create(cluster: Brokers, timeout_s: float) -> None:
    """Returns when both kinds have a coordinator; raises StartError where one does not come."""
    address = cluster.address(next(iter(cluster.brokers)))
    missing = dict(_KINDS)
    last = ErrorCode.NONE
    with trio.move_on_after(timeout_s):
        while missing:
            for kind in list(missing):
                request = FindCoordinatorRequest(key="highwater", key_type=kind)
                try:
                    last = code_of((await ask(address, request, _VERSION)).error_code)
                except OSError:
                    last = ErrorCode.NETWORK_EXCEPTION
                if last is ErrorCode.NONE:
                    del missing[kind]
                elif last not in RETRIABLE:
                    raise StartError(f"{missing[kind]} cannot be made: {last.name}")
            if missing:
                await trio.sleep(_POLL_S)
        return
    raise StartError(
        f"{' and '.join(missing.values())} could not be made within {timeout_s:g} s: {last.name}"
    )
