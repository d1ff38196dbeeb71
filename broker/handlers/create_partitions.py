"""CreatePartitions, API 37, v0-3: grows topics, and waits until every broker shows the new
partitions with leaders (`membership/agreement`).

Only the controller's broker does it.  `count` is the new total, and must be larger than the old
one; without an assignment the new partitions continue the placement of the old ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from highwater.broker.admin import topic_znodes as topics
from highwater.broker.admin.mutations import (
    error_names,
    mutation_quota,
    repeated,
    throttled,
)
from highwater.broker.admin.topic_waits import SUCCESS, TIMED_OUT, Outcome, TopicWait
from highwater.broker.context import Access, Api, Context, Delayed, Reply, of
from highwater.broker.request.response import Response
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.security.acls import Operation, ResourceType
from highwater.kafka.wire.messages import CreatePartitionsResponse

API = Api(
    key=37,
    name="CreatePartitions",
    versions=(0, 3),
    access=Access(
        each=of(ResourceType.TOPIC, Operation.ALTER, "name"),
        items=("topics",),
        answers="results",
        by_controller=True,
    ),
)

FIRST_STRICT = 3
_Result = CreatePartitionsResponse.CreatePartitionsTopicResult


async def handle(ctx: Context, request: Any) -> Reply:
    names = [topic.name for topic in request.topics]
    if not ctx.services.is_controller:
        return error_response(ctx, request, ErrorCode.NOT_CONTROLLER)
    twice = repeated(names)
    outcomes: dict[str, Outcome] = {}
    quota = mutation_quota(ctx, strict=ctx.version >= FIRST_STRICT)
    pending = {}
    for topic in request.topics:
        name = topic.name
        outcomes[name] = SUCCESS
        if name in twice:
            outcomes[name] = (ErrorCode.INVALID_REQUEST, "the topic is named more than once")
            continue
        wanted = topic.assignments
        try:
            partitions = await topics.add_partitions(
                ctx.services,
                name,
                topic.count,
                None if wanted is None else [tuple(a.broker_ids) for a in wanted],
                validate_only=request.validate_only,
                charge=quota.charge,
            )
        except ApiError as e:
            outcomes[name] = (e.code, e.detail)
            continue
        if not request.validate_only:
            pending[name] = tuple(partitions)

    def answer(found: Mapping[str, Outcome]) -> Response:
        return throttled(ctx, quota, _answer(found))

    if not pending:
        return answer(outcomes)
    if request.timeout_ms <= 0:
        return answer({**outcomes, **dict.fromkeys(pending, TIMED_OUT)})
    return Delayed(TopicWait(ctx.services, pending, outcomes, request.timeout_ms, answer))


def _answer(outcomes: Mapping[str, Outcome]) -> Response:
    results = [
        _Result(name=name, error_code=int(code), error_message=message)
        for name, (code, message) in outcomes.items()
    ]
    names = error_names(code for code, _ in outcomes.values())
    return Response(CreatePartitionsResponse(results=results), error_names=names)


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    return _answer({topic.name: (code, None) for topic in request.topics})
