"""Metadata, API 3, v0-13: brokers, the controller, and the partitions of topics with their leaders.

Any broker answers it from its metadata cache, with the endpoints of the listener on which the
request came in.  A topic that does not exist is first created if the request allows it (v4; before
that, always) and auto.create.topics.enable is set.  The answer for it is LEADER_NOT_AVAILABLE, and
the client asks again.

An empty list means all topics in v0, null in later versions.  Topic ids are answered from v10 and
asked for from v12: zero in answers, and UNKNOWN_TOPIC_ID when asked for, while they are not in use
(`kafka/features.py`).  The error of the whole in v13 is always NONE.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Any, ClassVar

from highwater.broker.admin.topic_znodes import auto_create
from highwater.broker.context import Access, Api, Context, Delayed, Reply, operations_of_cluster
from highwater.broker.first_news import FirstNewsWait
from highwater.broker.metadata.metadata_cache import DOUBT_MS
from highwater.broker.metadata.metadata_encoding import (
    NOT_ASKED,
    EncodedTopics,
    encode_answer,
    encode_topic,
    unknown_topic_id,
    with_operations,
)
from highwater.broker.request.purgatory import DelayedOperation
from highwater.broker.request.response import Response
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.security.acls import Operation, ResourceType
from highwater.kafka.topic_ids import NO_ID

API = Api(
    key=3,
    name="Metadata",
    versions=(0, 13),
    access=Access(inside="Describe of each topic, Create of new ones; others are hidden"),
)

FIRST_WITH_IDS = 12


def handle(ctx: Context, request: Any) -> Reply | Awaitable[Reply]:
    names, ids = _asked_for(ctx, request)
    cache = ctx.services.metadata
    if not cache.told and not ids:
        # a topic that is unknown afterwards is created when the client asks again
        return Delayed(FirstNewsWait(ctx, lambda: _answer(ctx, request, names)))
    if names is None or (not ids and (not _creates(ctx, request) or _all_known(ctx, names))):
        doubted = cache.doubted(names, ctx.now_ms)
        if doubted:
            return Delayed(MetadataWait(ctx, request, names, doubted))
        return _answer(ctx, request, names)
    return _answer_slowly(ctx, request, names, ids)


def _answer(ctx: Context, request: Any, names: tuple[str, ...] | None) -> Response:
    if ctx.services.authorizer is not None:
        return _assembled(ctx, request, names, [], {})
    answer = ctx.services.metadata.answer(
        ctx.version,
        ctx.listener,
        names,
        topic_operations=_of_topic(ctx, request, ""),
        cluster_operations=_of_cluster(ctx, request),
        now_ms=ctx.now_ms,
    )
    return Response(parts=(answer.data,), error_names=answer.errors)


class MetadataWait(DelayedOperation):
    """Waits briefly until leaders in doubt are known again."""

    kind: ClassVar[str] = "topic"

    def __init__(
        self, ctx: Context, request: Any, names: tuple[str, ...] | None, doubted: list[str]
    ) -> None:
        self.ctx = ctx
        self.request = request
        self.names = names
        self.doubted = doubted
        self.keys = doubted
        self.timeout_ms = DOUBT_MS

    def try_complete(self) -> Response | None:
        if self.ctx.services.metadata.doubted(self.doubted, self.ctx.now_ms):
            return None
        return _answer(self.ctx, self.request, self.names)

    def on_expire(self) -> Response:
        return _answer(self.ctx, self.request, self.names)


def _asked_for(ctx: Context, request: Any) -> tuple[tuple[str, ...] | None, list[bytes]]:
    """The names asked for (None: all topics), and the topic ids, each once."""
    topics = request.topics
    if topics is None or (ctx.version == 0 and not topics):
        return None, []
    ids: dict[bytes, None] = {}
    names: dict[str, None] = {}
    for topic in topics:
        topic_id = topic.topic_id.bytes if topic.topic_id is not None else NO_ID
        if ctx.version < FIRST_WITH_IDS and (topic.name is None or topic_id != NO_ID):
            raise ApiError(ErrorCode.INVALID_REQUEST, "topics are named by name before v12")
        if topic_id != NO_ID:
            ids[topic_id] = None
        elif topic.name is None:
            raise ApiError(ErrorCode.INVALID_REQUEST, "a topic has neither name nor id")
        else:
            names[topic.name] = None
    return (() if ids else tuple(names)), list(ids)


def _creates(ctx: Context, request: Any) -> bool:
    allowed = ctx.version < 4 or request.allow_auto_topic_creation
    return bool(allowed) and ctx.services.config.auto_create_topics_enable


def _all_known(ctx: Context, names: tuple[str, ...]) -> bool:
    has_topic = ctx.services.metadata.has_topic
    return all(has_topic(name) for name in names)


def _of_topic(ctx: Context, request: Any, name: str) -> int:
    if not request.include_topic_authorized_operations:
        return NOT_ASKED
    return _bits(ctx.operations(ResourceType.TOPIC, name))


def _of_cluster(ctx: Context, request: Any) -> int:
    asked = request.include_cluster_authorized_operations
    return _bits(operations_of_cluster(ctx)) if asked else NOT_ASKED


def _bits(operations: set[int]) -> int:
    return sum(1 << operation for operation in operations)


async def _answer_slowly(
    ctx: Context, request: Any, names: tuple[str, ...], ids: list[bytes]
) -> Reply:
    """The answer when topics must be created, or are asked for by their ids."""
    created = {}
    for name in names:
        if not ctx.services.metadata.has_topic(name) and _may_describe(ctx, name):
            created[name] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            if _may_create(ctx, name):
                created[name] = await auto_create(ctx.services, name)
    return _assembled(ctx, request, names, ids, created)


def _assembled(
    ctx: Context,
    request: Any,
    names: tuple[str, ...] | None,
    ids: list[bytes],
    created: Mapping[str, ErrorCode],
) -> Response:
    """An answer that is not kept.  Of all topics, those that the client may not describe are left
    out; one that it names is refused, whether it exists or not."""
    cache, version = ctx.services.metadata, ctx.version
    encoder = EncodedTopics(version, ctx.listener, cache.topic_id)
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    parts = []
    for topic_id in ids:
        found = cache.topic_of(topic_id)
        if found is None:
            parts.append(unknown_topic_id(version, topic_id))
        elif not _may_describe(ctx, found):
            refused = encode_topic(version, None, denied, (), topic_id)
            parts.append(with_operations(version, refused))
        else:
            operations = _of_topic(ctx, request, found)
            partitions = cache.partitions_of(found)
            parts.append(encoder.part(found, partitions, cache.brokers(), operations))
    for name in list(cache.topics()) if names is None else names:
        known = cache.partitions_of(name)
        code = created.get(name, ErrorCode.NONE) if _may_describe(ctx, name) else denied
        if code is denied:
            if names is not None:
                parts.append(with_operations(version, encode_topic(version, name, code, ())))
            continue
        operations = _of_topic(ctx, request, name)
        if known or code is ErrorCode.NONE:
            parts.append(encoder.part(name, known or None, cache.brokers(), operations))
        else:
            error = encode_topic(version, name, code, ())
            parts.append(with_operations(version, error, operations))
    answer = encode_answer(
        version,
        cache.named(),
        ctx.listener,
        cache.cluster_id,
        cache.controller_id,
        parts,
        _of_cluster(ctx, request),
    )
    return Response(parts=(answer.data,), error_names=answer.errors)


def _may_describe(ctx: Context, name: str) -> bool:
    return ctx.allows(Operation.DESCRIBE, ResourceType.TOPIC, name)


def _may_create(ctx: Context, name: str) -> bool:
    create = Operation.CREATE
    return ctx.allows(create, ResourceType.CLUSTER) or ctx.allows(create, ResourceType.TOPIC, name)


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    """The error at every named topic."""
    parts = [
        with_operations(ctx.version, encode_topic(ctx.version, topic.name or "", code, ()))
        for topic in request.topics or ()
    ]
    cache = ctx.services.metadata
    answer = encode_answer(
        ctx.version, cache.named(), ctx.listener, cache.cluster_id, cache.controller_id, parts
    )
    return Response(parts=(answer.data,), error_names=(code.name,))
