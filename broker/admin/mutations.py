"""Shared parts of the administrative handlers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, TypeVar

from highwater.broker.quota.quota_manager import MutationQuota, user_of
from highwater.broker.quota.throttling import throttled as with_throttle_time
from highwater.kafka.errors import ErrorCode
from highwater.kafka.types import TopicPartition

if TYPE_CHECKING:
    from highwater.broker.context import Context
    from highwater.broker.request.response import Response

V = TypeVar("V")


def repeated(names: Iterable[str]) -> set[str]:
    """The names that occur more than once."""
    seen: set[str] = set()
    return {name for name in names if name in seen or seen.add(name)}  # type: ignore[func-returns-value]


def by_topic(results: Mapping[TopicPartition, V]) -> dict[str, list[tuple[int, V]]]:
    """Results by topic, in the order in which the topics first occur."""
    grouped: dict[str, list[tuple[int, V]]] = {}
    for tp, value in results.items():
        grouped.setdefault(tp.topic, []).append((tp.partition, value))
    return grouped


def error_names(codes: Iterable[ErrorCode]) -> tuple[str, ...]:
    """The names for the metric of errors."""
    return tuple(code.name for code in codes if code is not ErrorCode.NONE)


def mutation_quota(ctx: Context, *, strict: bool) -> MutationQuota:
    """controller_mutation_rate of this client; strict for versions that know its error."""
    user, client = user_of(ctx.principal), ctx.client_id or ""
    return ctx.services.quotas.mutations(user, client, strict, ctx.now_ms)


def throttled(ctx: Context, quota: MutationQuota, response: Response) -> Response:
    """The answer; the client is muted for what it used beyond its quota."""
    if not quota.throttle_ms:
        return response
    quota.told()
    return with_throttle_time(response, ctx.api.key, ctx.version, quota.throttle_ms)
