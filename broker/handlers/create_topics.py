"""CreateTopics, API 19, v0-7: creates topics, and waits until every broker shows their
leaders (`membership/agreement`).

Only the controller's broker does it (NOT_CONTROLLER otherwise).  The topics are independent: each
has its own error.  With a time-out of 0 the topic is created, and the answer is REQUEST_TIMED_OUT
at once.

v1 adds validate_only and messages, v4 the broker's defaults by -1, v5 the topic's resulting numbers
and configuration, v6 knows THROTTLING_QUOTA_EXCEEDED, v7 topic ids (zero while none are in use).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from highwater.broker.admin import topic_znodes as topics
from highwater.broker.admin.configs import topic_entries
from highwater.broker.admin.mutations import (
    error_names,
    mutation_quota,
    repeated,
    throttled,
)
from highwater.broker.admin.topic_waits import SUCCESS, TIMED_OUT, Outcome, TopicWait
from highwater.broker.admin.topic_znodes import NewTopic
from highwater.broker.context import Access, Api, Context, Delayed, Reply, cluster, either, of
from highwater.broker.request.response import Response
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.security.acls import Operation, ResourceType
from highwater.kafka.wire.messages import CreateTopicsResponse

API = Api(
    key=19,
    name="CreateTopics",
    versions=(0, 7),
    access=Access(
        each=either(cluster(Operation.CREATE), of(ResourceType.TOPIC, Operation.CREATE, "name")),
        items=("topics",),
        answers="topics",
        by_controller=True,
    ),
)

HIDING = (ErrorCode.NONE, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
FIRST_WITH_DETAILS = 5
FIRST_STRICT = 6
_Result = CreateTopicsResponse.CreatableTopicResult
_Config = _Result.CreatableTopicConfigs


async def handle(ctx: Context, request: Any) -> Reply:
    names = [topic.name for topic in request.topics]
    outcomes: dict[str, Outcome] = dict.fromkeys(names, SUCCESS)
    details: dict[str, dict[str, Any]] = {}
    if not ctx.services.is_controller:
        not_controller: Outcome = (ErrorCode.NOT_CONTROLLER, None)
        return _answer(names, dict.fromkeys(names, not_controller), details, ctx)
    twice = repeated(names)
    quota = mutation_quota(ctx, strict=ctx.version >= FIRST_STRICT)
    pending = {}
    for topic in request.topics:
        name = topic.name
        if name in twice:
            outcomes[name] = (ErrorCode.INVALID_REQUEST, "the topic is named more than once")
            continue
        try:
            assignment, overrides = await topics.create(
                ctx.services,
                _new_topic(topic),
                validate_only=request.validate_only,
                charge=quota.charge,
            )
        except ApiError as e:
            outcomes[name] = (e.code, e.detail)
            continue
        if ctx.version >= FIRST_WITH_DETAILS and ctx.allows(
            Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, name
        ):
            details[name] = _details(ctx, assignment, overrides)
        if not request.validate_only:
            pending[name] = tuple(assignment)

    def answer(found: Mapping[str, Outcome]) -> Response:
        return throttled(ctx, quota, _answer(names, found, details, ctx))

    if not pending:
        return answer(outcomes)
    if request.timeout_ms <= 0:
        return answer({**outcomes, **dict.fromkeys(pending, TIMED_OUT)})
    return Delayed(TopicWait(ctx.services, pending, outcomes, request.timeout_ms, answer))


def _new_topic(topic: Any) -> NewTopic:
    assignments = {a.partition_index: tuple(a.broker_ids) for a in topic.assignments or ()}
    if len(assignments) != len(topic.assignments or ()):
        detail = "a partition is assigned more than once"
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, detail)
    return NewTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        assignments,
        {c.name: c.value for c in topic.configs or ()},
    )


def _details(
    ctx: Context, assignment: Mapping[int, tuple[int, ...]], overrides: Mapping[str, str]
) -> dict[str, Any]:
    return {
        "num_partitions": len(assignment),
        "replication_factor": len(assignment[0]),
        "configs": [
            _Config(
                name=e.name,
                value=e.value,
                read_only=e.read_only,
                config_source=int(e.source),
                is_sensitive=e.sensitive,
            )
            for e in topic_entries(ctx.services.config, overrides)
        ],
    }


def _answer(
    names: Sequence[str],
    outcomes: Mapping[str, Outcome],
    details: Mapping[str, Mapping[str, Any]],
    ctx: Context,
) -> Response:
    """`names` in the order of the request: a name given twice is answered twice.  A client that
    may not describe a topic's configuration is not told it, nor its numbers."""

    def hidden(name: str) -> dict[str, int]:
        code, (refused, _) = ErrorCode.NONE, outcomes[name]
        if refused in HIDING and not ctx.allows(
            Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, name
        ):
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return {"topic_config_error_code": int(code)}

    failed: dict[str, Any] = {"num_partitions": -1, "replication_factor": -1, "configs": []}
    results = [
        _Result(
            name=name,
            error_code=int(code),
            error_message=message,
            topic_id=_id_of(ctx, name) if code is ErrorCode.NONE else None,
            **(failed if code is not ErrorCode.NONE else details.get(name, failed)),
            **hidden(name),
        )
        for name, (code, message) in ((name, outcomes[name]) for name in names)
    ]
    errors = error_names(code for code, _ in outcomes.values())
    return Response(CreateTopicsResponse(topics=results), error_names=errors)


def _id_of(ctx: Context, name: str) -> UUID:
    """Zero for a topic that is only validated."""
    return UUID(bytes=ctx.services.metadata.topic_id(name))


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    names = [topic.name for topic in request.topics]
    return _answer(names, dict.fromkeys(names, (code, None)), {}, ctx)
