"""One row of the table of configuration: all that is known of one property.

`property_table` has all rows.  A property is in one of three states: *built* (something reads the
value, and a test shows its effect), *refused* (only Kafka's default is accepted, and the row says
why), or *without effect* (accepted, because no client and no operator could tell one value from
another here).

A test compares the rows with Apache Kafka's own (names, types, defaults, ranges, synonyms, update
modes); where one differs on purpose, `differs` says why.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any, TypeVar, cast

LONG_MAX = 9223372036854775807
INT_MAX = 2147483647
DOUBLE_MAX = 1.7976931348623157e308
HOUR_MS = 3_600_000

Int = int
Long = int
Short = int
Double = float
Value = bool | int | float | str | tuple[str, ...]
T = TypeVar("T")


class Kind(IntEnum):
    """Kafka's types of properties (ConfigDef.Type), by their numbers in DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Update(Enum):
    """Kafka's update modes (DynamicBrokerConfig): whether a property may change at run time."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class State(Enum):
    BUILT = "built"
    REFUSED = "refused"
    WITHOUT_EFFECT = "without effect"


@dataclass(frozen=True, slots=True, kw_only=True)
class Property:
    """A property of brokers, or (of the same shape) one of topics."""

    name: str
    kind: Kind
    default: Value | None = None
    """None: it has none."""
    doc: str = ""
    """One sentence for DescribeConfigs and docs/configuration.md, where the property is built."""
    at_least: float | None = None
    at_most: float | None = None
    choices: tuple[str, ...] = ()
    """For a list: the allowed items.  For a refused property: values accepted like the default."""
    wrong: Callable[[str], str | None] | None = None
    """The mistake in a value, where range and choices do not cover it: "problem; remedy"."""
    state: State = State.BUILT
    reason: str = ""
    """The reason why it is refused or without effect."""
    update: Update = Update.READ_ONLY
    doubles: bool = False
    """A number of threads: one change may halve or double it at most (DynamicThreadPool)."""
    topic: str = ""
    """The property of topics whose default this one is."""
    synonyms: tuple[str, ...] = ()
    """For a topic's property: the broker's properties that give its default; the first given one
    wins.  For a broker's property: its other names, which count if it is not given itself."""
    attribute: str = ""
    """The attribute of `Config` that has the value; "" where there is none."""
    read_by: str = ""
    """The module in which a value takes effect."""
    test: str = ""
    """The test that shows it, as module::function."""
    differs: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Differences from Apache Kafka 3.9 (type, default, range, update), and their reasons."""


def prop(default: T, **row: Any) -> T:
    """A field of `Config`, with the fields of its row except name, type and attribute.

    `kind` is given only where the annotation does not say Kafka's type.
    """
    return dataclasses.field(default=default, metadata={"row": row})


_KINDS = {
    "bool": Kind.BOOLEAN,
    "str": Kind.STRING,
    "Short": Kind.SHORT,
    "Int": Kind.INT,
    "Long": Kind.LONG,
    "Double": Kind.DOUBLE,
}


def row_of(field: dataclasses.Field[Any]) -> Property:
    """The row that a field of `Config` carries."""
    given = dict(field.metadata["row"])
    kind = given.pop("kind", None) or _KINDS[str(field.type).removesuffix(" | None")]
    return Property(
        name=field.name.replace("_", "."),
        attribute=field.name,
        kind=kind,
        default=cast("Value | None", field.default),
        **given,
    )


def rows(
    state: State,
    reason: str,
    *family: tuple[str, Kind, Value | None],
    update: Update = Update.READ_ONLY,
) -> tuple[Property, ...]:
    """Properties (name, type, Kafka's default) that share the reason why they are not built."""
    return tuple(
        Property(name=name, kind=kind, default=default, state=state, reason=reason, update=update)
        for name, kind, default in family
    )


def text_of(value: Any) -> str:
    """A value as a properties file spells it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, float):
        return repr(value).replace("e+", "E").replace("e-", "E-")  # as Java spells it
    return str(value)
