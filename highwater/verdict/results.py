"""An engine's findings: the same form from Spark and from DuckDB, in memory and as JSON."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict


class Finding(TypedDict):
    """One row of a check's `:findings`."""

    kind: str
    topic: str | None
    partition: int | None
    offset: int | None
    value: str | None
    detail: str


class Found(TypedDict):
    """One check's."""

    examined: int
    found: dict[str, int]
    """Kind -> how many."""
    examples: list[Finding]
    """A few of each kind, the same ones whichever engine looked."""


class Ingest(TypedDict):
    """How Spark's own reading of the topics went."""

    records: int
    seconds: float


class Results(TypedDict):
    """All checks'."""

    engine: str
    version: str
    checks: dict[str, Found]
    facts: dict[str, Any]
    """A number for each name of `catalog.FACTS`; longest_gap_ns may be None."""
    claims: NotRequired[dict[str, Any]]
    """Of a history of one's own: a value for each name of `catalog.CLAIMS`."""
    seconds: float
    master: NotRequired[str]
    ingest: NotRequired[Ingest | None]
    ingest_error: NotRequired[str | None]
    phases: NotRequired[dict[str, float]]
    """Spark's seconds: session, read, views, checks."""


def none_yet(ids: list[str]) -> dict[str, Found]:
    """An entry for each check, to be filled from the engine's rows."""
    return {id_: Found(examined=0, found={}, examples=[]) for id_ in ids}


def finding(row: dict[str, Any]) -> Finding:
    """The columns of `catalog.FINDING` in a row that may have more."""
    return Finding(
        kind=row["kind"],
        topic=row["topic"],
        partition=row["partition"],
        offset=row["offset"],
        value=row["value"],
        detail=row["detail"],
    )
