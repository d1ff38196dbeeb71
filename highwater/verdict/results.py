"""The form of an engine's findings: the same for Spark and DuckDB, in memory and as JSON."""

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
    """The findings of one check."""

    examined: int
    found: dict[str, int]
    """Kind -> the number of findings."""
    examples: list[Finding]
    """A few findings of each kind; both engines give the same ones."""


class Ingest(TypedDict):
    """The outcome of Spark's own reading of the topics."""

    records: int
    seconds: float


class Results(TypedDict):
    """The findings of all checks."""

    engine: str
    version: str
    checks: dict[str, Found]
    facts: dict[str, Any]
    """A number for each name of `catalog.FACTS`; longest_gap_ns may be None."""
    claims: NotRequired[dict[str, Any]]
    """Only for a user's own history: a value for each name of `catalog.CLAIMS`."""
    seconds: float
    master: NotRequired[str]
    ingest: NotRequired[Ingest | None]
    ingest_error: NotRequired[str | None]
    phases: NotRequired[dict[str, float]]
    """The seconds of Spark's phases: session, read, views, checks."""


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
