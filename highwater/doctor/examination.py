"""One examination: the settings of a client, and the way to its cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from highwater.doctor.client_findings import Effect, Finding, Outcome, in_order
from highwater.doctor.cluster_limits import broker_findings, topic_findings
from highwater.doctor.dialects import ClientSettings, Dialect, misspelt, roles, settings_of
from highwater.doctor.reach import addresses, reach
from highwater.doctor.rules import findings
from highwater.doctor.talk import Login

Tell = Callable[[str], None]
CLIENT = "client"
"""The role of settings that are neither a producer's nor a consumer's."""


@dataclass(slots=True)
class Examination(Outcome):
    """The settings that were read, and the findings; one that both roles have appears once."""

    dialect: Dialect
    clients: list[ClientSettings] = field(default_factory=list)
    found: dict[str, list[Finding]] = field(default_factory=dict)
    """By subject: producer, consumer, names, connection."""

    def add(self, where: str, some: Sequence[Finding]) -> None:
        known = {finding for findings in self.found.values() for finding in findings}
        self.found.setdefault(where, []).extend(f for f in some if f not in known)

    def all_findings(self) -> Iterable[Finding]:
        return [finding for some in self.found.values() for finding in some]

    def as_json(self) -> dict[str, Any]:
        return {
            "headline": self.headline,
            "client": self.dialect.name,
            "findings": [
                {"of": where, **finding.as_json()}
                for where, some in self.found.items()
                for finding in in_order(some)
            ],
        }


def examine_settings(
    by_role: Mapping[str, Mapping[str, str]], dialect: Dialect, only: str | None
) -> Examination:
    """Examines settings; `by_role` as `settings_file` reads it."""
    examined = Examination(dialect)
    for role, raw in by_role.items():
        wrong = [
            Finding(Effect.REMARK, name, "No setting has this name.", f"{near}, perhaps")
            for name, near in misspelt(raw, dialect).items()
        ]
        examined.add("names", wrong)
        named = [role] if role else roles(raw, dialect)
        if only is not None:
            named = [only] if role in ("", only) else []
        for one in named or ([] if role else [CLIENT]):
            settings = settings_of(raw, dialect, one)
            examined.clients.append(settings)
            examined.add(one, findings(settings))
    return examined


def examine_connection(
    examined: Examination, bootstrap: str, topics: Sequence[str], tell: Tell
) -> None:
    """Connects to the cluster as the client would; raises ValueError for a malformed address."""
    places = addresses(bootstrap)
    reached = reach(places, Login.of(examined.clients[0].given), tell)
    examined.add("connection", reached.findings)
    if reached.talk is None:
        return
    try:
        for settings in examined.clients:
            examined.add(settings.role, list(topic_findings(reached.talk, topics, settings)))
            if reached.brokers:
                some = broker_findings(reached.talk, min(reached.brokers), settings)
                examined.add(settings.role, list(some))
    finally:
        reached.talk.close()
