"""`highwater chaos --secure`: the workload's clients use TLS, log in, and have few rights.

Theory of operation.  The clients' listener of each broker speaks SASL_SSL.  The workload logs in by
SCRAM as the user alice, who has only the rights that it needs: for the run's topics, consumer
groups, and transactional ids with the run's name.  The harness uses a listener without security, so
its witnesses see the same as in any run.  A run whose security was off would prove nothing about
it.  So a run begins only when every broker serves alice, and refuses both bob, who has a password
but no rights, and a client without TLS.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from highwater.cluster.ask import PATIENT_S, ask, metadata
from highwater.cluster.client_files import Way
from highwater.cluster.interface import PATIENCE_S, Cluster, ClusterError
from highwater.cluster.leader_moves import addresses, reachable
from highwater.kafka.client.retries import code_of
from highwater.kafka.errors import ErrorCode
from highwater.kafka.security.acls import (
    Operation,
    PatternType,
    Permission,
    Resource,
    ResourceType,
)
from highwater.kafka.wire import messages
from highwater.kafka.wire.codec import BadMessage

if TYPE_CHECKING:
    from highwater.world.api import Network

SECURITY = "sasl_ssl"
USER, STRANGER = "alice", "bob"
POLL_S = 0.05
_FAILURES = (OSError, BadMessage, trio.BrokenResourceError)


def way_of(cluster: Cluster, folder: Path, security: str, user: str = USER) -> Way:
    """How this user's clients reach the cluster; `folder`: the cluster's."""
    if security == "plaintext":
        return Way(bootstrap=cluster.bootstrap)
    return Way(
        bootstrap=cluster.bootstrap, security=security, secure=str(folder / "secure"), user=user
    )


async def begin(
    cluster: Cluster, folder: Path, security: str, topics: Sequence[str], run: str
) -> None:
    """Gives alice her rights; returns when every broker grants them to her and to nobody else.
    ClusterError where that takes too long."""
    from highwater.cluster.remote.secured_target import network_by  # late: this loads cryptography

    await _allow(cluster, topics, run)
    networks = {
        user: network_by(way_of(cluster, folder, security, user).connect("java"))
        for user in (USER, STRANGER)
    }
    await until_right(lambda: _wrong(cluster, topics, networks))


async def until_right(look: Callable[[], Awaitable[str]]) -> None:
    """Repeats `look` until it finds nothing wrong; ClusterError with what it found last, if that
    takes too long."""
    last = "no broker has answered yet"
    with trio.move_on_after(PATIENCE_S):
        while wrong := await look():
            last = wrong
            await trio.sleep(POLL_S)
        return
    raise ClusterError(f"the run's access rules do not hold within {PATIENCE_S:g} s: {last}")


async def _allow(cluster: Cluster, topics: Sequence[str], run: str) -> None:
    """Creates the rules by one request.  Brokers take them over in its order, so the topics come
    last: `_wrong` looks only at those."""
    wanted = [
        (Resource(ResourceType.GROUP, "*"), (Operation.READ,)),
        (
            Resource(ResourceType.TRANSACTIONAL_ID, run, PatternType.PREFIXED),
            (Operation.DESCRIBE, Operation.WRITE),
        ),
        *((Resource(ResourceType.TOPIC, t), (Operation.READ, Operation.WRITE)) for t in topics),
    ]
    make = messages.CreateAclsRequest.AclCreation
    request = messages.CreateAclsRequest(
        creations=[
            make(
                resource_type=resource.type, resource_name=resource.name,
                resource_pattern_type=resource.pattern, principal=f"User:{USER}", host="*",
                operation=operation, permission_type=Permission.ALLOW,
            )
            for resource, operations in wanted
            for operation in operations
        ]
    )  # fmt: skip
    _, address = next(reachable(cluster))
    answer = await ask(address, request, 3, PATIENT_S)
    for result in answer.results:
        if result.error_code:
            told = result.error_message or code_of(result.error_code).name
            raise ClusterError(f"the run's access rules were refused: {told}")


async def _wrong(cluster: Cluster, topics: Sequence[str], networks: Mapping[str, Network]) -> str:
    """The first thing that is not as it should be, in words; empty if there is none."""
    for number, address in zip(cluster.brokers, addresses(cluster.bootstrap), strict=True):
        for user, expected in (
            (USER, ErrorCode.NONE),
            (STRANGER, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        ):
            try:
                answer = await metadata(address, list(topics), PATIENT_S, networks[user])
            except _FAILURES as error:
                return f"broker-{number} does not serve {user}: {error}"
            told = {topic.name: code_of(topic.error_code) for topic in answer.topics}
            for topic in topics:
                if (got := told.get(topic)) is not expected:
                    what = "nothing" if got is None else got.name
                    return f"broker-{number} tells {user} {what} of {topic}, not {expected.name}"
        try:
            await metadata(address, [], PATIENT_S)
        except _FAILURES:
            continue
        return f"broker-{number} serves clients without TLS on the secured listener"
    return ""
