"""What the administrative handlers share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, TypeVar

from highwater.common.errors import ErrorCode
from highwater.common.types import TopicPartition

if TYPE_CHECKING:
    from broker.services import Services

V = TypeVar("V")


def is_controller(services: Services) -> bool:
    """Whether the active controller runs in this broker."""
    return services.candidate is not None and services.candidate.active


def repeated(names: Iterable[str]) -> set[str]:
    """The names that occur more than once."""
    seen: set[str] = set()
    return {name for name in names if name in seen or seen.add(name)}  # type: ignore[func-returns-value]


def by_topic(results: Mapping[TopicPartition, V]) -> dict[str, list[tuple[int, V]]]:
    """Results by topic, in the order in which the topics come."""
    grouped: dict[str, list[tuple[int, V]]] = {}
    for tp, value in results.items():
        grouped.setdefault(tp.topic, []).append((tp.partition, value))
    return grouped


def error_names(codes: Iterable[ErrorCode]) -> tuple[str, ...]:
    """The names for the metric of errors."""
    return tuple(code.name for code in codes if code is not ErrorCode.NONE)
