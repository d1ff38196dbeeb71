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
    """Returns when each broker names a coordinator of both kinds; StartError where one does not.

    Until the topics exist, only the first broker is asked.  The others learn of them from the
    controller a moment later; they are waited for, because a client may ask any of them first.
    """
    lacking = ""
    with trio.move_on_after(timeout_s):
        for kind, topic in _KINDS.items():  # so that both are made at the same time
            await _asked(cluster.address(next(iter(cluster.brokers))), kind, topic)
        for number in cluster.brokers:
            for kind, topic in _KINDS.items():
                lacking = f"broker {number} does not name a coordinator of {topic}"
                while code := await _asked(cluster.address(number), kind, topic):
                    lacking = f"broker {number} does not name a coordinator of {topic}: {code.name}"
                    await trio.sleep(_POLL_S)
        return
    raise StartError(f"the internal topics are not there after {timeout_s:g} s: {lacking}")


async def _asked(address: tuple[str, int], kind: int, topic: str) -> ErrorCode:
    """NONE, or an error that may pass; StartError for one that no retry can cure."""
    request = FindCoordinatorRequest(key="highwater", key_type=kind)
    try:
        code = code_of((await ask(address, request, _VERSION)).error_code)
    except OSError:
        return ErrorCode.NETWORK_EXCEPTION
    if code is not ErrorCode.NONE and code not in RETRIABLE:
        raise StartError(f"{topic} cannot be made: {code.name}")
    return code
