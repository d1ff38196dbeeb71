"""A row of the table of benchmarks (`table`): what it starts, its load, its options, its figures.

A benchmark is a function of its options and of the sides that it measures.  It returns its result,
mostly a `Table`, whose lines say what each figure is, its unit, and whether more of it is better.
The options are the fields of a dataclass; `highwater bench NAME` has an option for each.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from highwater.bench.figures.sides import Sides


def option(
    default: Any,
    text: str = "",
    *,
    flag: str = "",
    least: float | None = None,
    most: float | None = None,
    of: Sequence[str] = (),
) -> Any:
    """A field that is an option, too; `flag` is the option's name, if it is not the field's.

    `least` and `most` bound the value; `of` lists the allowed ones.  An option whose default is a
    tuple may be given more than once.
    """
    given = {"text": text, "flag": flag, "least": least, "most": most, "of": of}
    return dataclasses.field(default=default, metadata=given)


class Found(Protocol):
    """The result of a benchmark, which can be shown and kept."""

    def text(self) -> str: ...

    def markdown(self) -> str: ...

    def as_json(self) -> Any: ...


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One benchmark; `run` gets the options, and raises BenchFailed."""

    name: str
    help: str
    """What it measures, in a sentence or two."""
    examples: tuple[str, ...]
    """Commands, without `highwater bench`."""
    run: Callable[[Any, Sides], Awaitable[Found]]
    options: type[Any]
    """A dataclass, whose fields are made by `option`."""
    against: tuple[str, ...] = ("apache", "zookeeper")
    """The other sides with which it can be compared."""
    zookeeper: str = "java"
    """The ZooKeeper of Highwater's side, if ZooKeepers are not what is compared."""
    section: Callable[[Any, str | None], tuple[str, str]] | None = None
    """(options, what it is compared with) -> the name of its section of a page, and the heading."""
    page: Callable[[Any, str], str] | None = None
    """(result, a sentence) -> a page with plots."""
    problem: Callable[[Any], str] | None = None
    """Result -> why the command ends with exit code 1; empty: it ends with 0."""
