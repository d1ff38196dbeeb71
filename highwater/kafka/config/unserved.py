"""Properties that ask for what is not built: Java classes, the migration to KRaft, tiered storage.

Each is accepted only with Kafka's default; any other value stops the start, and none can be set
while a broker runs (`unbuilt_rows` has them).  What has no effect and does no harm is kept, at the
start and later.  This holds for a listener's own form, too
(`listener.name.N.ssl.…`, `listener.name.N.MECHANISM.sasl.…`).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass

from highwater.kafka.config.checks import HIDDEN, complaint
from highwater.kafka.config.property_row import Property, State, text_of
from highwater.kafka.config.property_table import BROKER, INERT
from highwater.kafka.config.security_rows import SECURITY
from highwater.kafka.config.unbuilt_rows import FAMILIES

_OF_LISTENER = re.compile(r"listener\.name\.[^.]+\.(?P<rest>.+)")
_OF_MECHANISM = re.compile(r"[^.]+\.(?P<base>sasl\..+|connections\.max\.reauth\.ms)")


@dataclass(frozen=True, slots=True)
class Unserved:
    """The missing part that a property needs; `base` is its name without listener or mechanism."""

    base: str
    problem: str

    def accepts(self, value: str) -> bool:
        """Whether the value is Kafka's default ("" where Kafka has none), or accepted like it."""
        row = BROKER.get(self.base)
        if row is None:
            return value == ""
        return value in row.choices or _same(value, text_of(row.default))


LISTENERS_LIMITS = ("max.connections", "max.connection.creation.rate")
"""The properties that a listener may have of its own besides those of security."""


def of_listener(name: str) -> Property | None:
    """The row of a listener's own form of a property, under that name, where that is built."""
    found = _OF_LISTENER.fullmatch(name)
    base = _base(name)
    if found is None or (
        base not in LISTENERS_LIMITS and all(row.name != base for row in SECURITY)
    ):
        return None
    return dataclasses.replace(BROKER[base], name=name, attribute="")


def _base(name: str) -> str:
    """The property's name without listener or mechanism."""
    if not (of_listener := _OF_LISTENER.fullmatch(name)):
        return name
    base = of_listener["rest"]
    of_mechanism = _OF_MECHANISM.fullmatch(base)
    return of_mechanism["base"] if of_mechanism else base


def inert(name: str) -> Property | None:
    """The row of a property, or of a listener's own form of it, that is kept without effect."""
    return INERT.get(_base(name))


def unserved(name: str) -> Unserved | None:
    """The property of that name, if it needs what is not built."""
    base = _base(name)
    row = BROKER.get(base)
    if row is not None:
        return Unserved(base, row.reason) if row.state is State.REFUSED else None
    family = next((family for family in FAMILIES if base.startswith(family)), None)
    return None if family is None else Unserved(base, FAMILIES[family])


def refused(properties: Mapping[str, str]) -> dict[str, str]:
    """Name -> a line, for each property that needs something not built; no line shows a secret."""
    lines = {}
    for name, value in properties.items():
        found = unserved(name)
        if found is not None and not found.accepts(value.strip()):
            # the value of any other name may be a secret
            shown = value if found.base in BROKER else HIDDEN
            lines[name] = complaint(name, shown, found.problem, "remove it")
    return lines


def _same(value: str, default: str) -> bool:
    """Whether Java reads both as the same boolean, number, list or text."""
    if default in ("true", "false"):
        return value.lower() == default
    try:
        return float(value) == float(default)
    except ValueError:
        return [item.strip() for item in value.split(",")] == default.split(",")
