"""`highwater doctor --watch`: a client's traffic, watched on its way through proxies.

Theory of operation.  Proxies on 127.0.0.1 stand in front of the brokers, as they do for a chaos
run on a cluster at an address, and replace every address in an answer by their own: so the client
cannot get past them.  `seen` gathers what the client's requests show.  The rules of `highwater
doctor` then judge the settings that were seen, not defaults that the client may have changed.
Nothing is written to disk, and no login is read.

No request of a client that speaks TLS can be seen; the watch says that it speaks TLS.
"""

from __future__ import annotations

import itertools
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import trio

from highwater.cluster.remote.remote_cluster import Commands, remote_cluster
from highwater.doctor import rules
from highwater.doctor.client_findings import Effect, Finding, Outcome, headline, in_order, serious
from highwater.doctor.dialects import AIOKAFKA, JAVA, KAFKA_PYTHON, LIBRDKAFKA, ClientSettings
from highwater.doctor.reach import reach
from highwater.doctor.seen import Client, Seen
from highwater.doctor.talk import SPEAKS_TLS, Login

Tell = Callable[[str], None]
_LIBRARIES = (
    ("apache-kafka-java", JAVA),
    ("librdkafka", LIBRDKAFKA),
    ("confluent-kafka", LIBRDKAFKA),
    ("aiokafka", AIOKAFKA),
    ("kafka-python", KAFKA_PYTHON),
)
_NEEDS: dict[str, tuple[tuple[rules.Rule, str], ...]] = {
    "producer": (
        (rules.acks, "acks"),
        (rules.repeats, "enable.idempotence"),
        (rules.reorders, "enable.idempotence"),
        (rules.transactions, "transactional.id"),
    ),
    "consumer": ((rules.isolation, "isolation.level"),),
}
"""The rules that need only what can be seen, each with the setting that must have been seen."""
_PASSING = frozenset(
    {"MEMBER_ID_REQUIRED", "NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "LEADER_NOT_AVAILABLE"}
    | {"COORDINATOR_LOAD_IN_PROGRESS", "REBALANCE_IN_PROGRESS", "CONCURRENT_TRANSACTIONS"}
    | {"UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "NOT_LEADER_OR_FOLLOWER"}
)
"""Errors that every client meets now and then, and tries again."""


@dataclass(slots=True)
class Watched(Outcome):
    """The clients that connected, each with its findings."""

    connection: list[Finding] = field(default_factory=list)
    clients: list[tuple[Client, list[Finding]]] = field(default_factory=list)

    def all_findings(self) -> Iterable[Finding]:
        return [*self.connection, *(f for _, some in self.clients for f in some)]

    @property
    def headline(self) -> str:
        if not self.clients and not serious(self.connection):
            return "no client was seen"
        return headline(self.findings)

    def as_json(self) -> dict[str, Any]:
        return {
            "headline": self.headline,
            "connection": [f.as_json() for f in in_order(self.connection)],
            "clients": [
                {
                    "client.id": client.name,
                    "software": client.software,
                    "roles": sorted(client.roles),
                    "settings": client.settings,
                    "requests": dict(client.asked),
                    "findings": [f.as_json() for f in in_order(some)],
                }
                for client, some in self.clients
            ],
        }


def findings_of(client: Client) -> list[Finding]:
    """The rules' findings about all values that were seen, several for one setting included."""
    dialect = next((d for name, d in _LIBRARIES if client.software.startswith(name)), JAVA)
    found: list[Finding] = []
    values = [[(name, value) for value in some] for name, some in client.settings.items()]
    for given in itertools.islice(map(dict, itertools.product(*values)), 64):
        for role in sorted(client.roles):
            settings = ClientSettings(dialect, role, given)
            for rule, needed in _NEEDS[role]:
                found += rule(settings) if needed in given else ()
    for api, told in client.too_old.items():
        why = f"{told[:1].upper()}{told[1:]}."
        found.append(Finding(Effect.REFUSED, api, why, "a version of the library that fits"))
    for (what, code), times in client.errors.items():
        if code in _PASSING:
            continue
        effect = Effect.UNUSABLE if what.startswith("topic ") else Effect.REFUSED
        remedy = "create it, or correct the name" if "UNKNOWN_TOPIC" in code else ""
        found.append(Finding(effect, what, f"The brokers answer {code} ({times} times).", remedy))
    return list(dict.fromkeys(found))


def connection_findings(seen: Seen, tls_listener: bool) -> Iterator[Finding]:
    if seen.tls and not tls_listener:
        yield Finding(
            Effect.UNREACHABLE,
            f"{seen.tls} connections with TLS",
            "The client speaks TLS, and the listener does not.",
            "security.protocol=PLAINTEXT (or SASL_PLAINTEXT), or the address of a TLS listener",
        )
    if seen.plain and tls_listener:
        yield Finding(
            Effect.UNREACHABLE,
            f"{seen.plain} connections without TLS",
            "The listener speaks TLS, and the client does not.",
            "security.protocol=SSL (or SASL_SSL)",
        )
    if seen.tls and tls_listener:
        yield Finding(
            Effect.REMARK,
            f"{seen.tls} connections with TLS",
            "What goes through TLS cannot be seen, and addresses in it are not replaced.",
            "watch it at a listener without TLS",
        )
    for (owner, why), times in seen.not_reached.items():
        yield Finding(Effect.UNREACHABLE, owner, f"{times} times: {why}.", "start the broker")
    for client, times in seen.silent.items():
        yield Finding(
            Effect.UNREACHABLE,
            client,
            f"The broker hangs up without an answer ({times} times): it wants a login, or knows no"
            " such request.",
            "sasl.mechanism and the user's credentials, if the listener wants a login",
        )


def watch(
    bootstrap: Sequence[tuple[str, int]], login: Login, seconds: float | None, tell: Tell
) -> Watched:
    """Stands in front of the brokers until the time is over, or until Ctrl-C."""
    reached = reach(bootstrap, login, tell)
    tls = any(f.why.lower().startswith(SPEAKS_TLS) for f in reached.findings)
    tls |= reached.talk is not None and login.tls
    watched = Watched(reached.findings)
    known = reached.brokers
    if reached.talk is not None:
        reached.talk.close()
    elif tls:
        known = {0: bootstrap[0]}
        watched.connection.clear()
    else:
        return watched
    seen = Seen(tell)
    trio.run(_stand_before, known, seen, seconds, tell)
    watched.connection += connection_findings(seen, tls)
    watched.clients = [(client, findings_of(client)) for client in seen.clients.values()]
    return watched


async def _stand_before(
    known: dict[int, tuple[str, int]], seen: Seen, seconds: float | None, tell: Tell
) -> None:
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with remote_cluster(known, Commands(), observer=seen) as cluster:
            ending = "Ctrl-C ends it" if seconds is None else f"for {seconds:g} s"
            tell(f"connect the client to {cluster.bootstrap} ({ending})")
            with trio.move_on_after(float("inf") if seconds is None else seconds):
                async for _ in signals:
                    return
