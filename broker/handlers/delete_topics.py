"""DeleteTopics, API 20, v0-6: marks topics for deletion, and waits until they are gone.

Only the controller's broker does it.  The controller deletes a topic when all of its replicas are
alive, so a time-out does not mean that the topic stays.  v6 can name topics by id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from highwater.broker.admin import topic_znodes as topics
from highwater.broker.admin.mutations import error_names, mutation_quota, throttled
from highwater.broker.admin.topic_waits import GONE, SUCCESS, TIMED_OUT, Outcome, TopicWait
from highwater.broker.context import Access, Api, Context, Delayed, Reply, of
from highwater.broker.request.response import Response
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.security.acls import Operation, ResourceType
from highwater.kafka.wire.messages import DeleteTopicsResponse

API = Api(
    key=20,
    name="DeleteTopics",
    versions=(0, 6),
    access=Access(
        each=of(ResourceType.TOPIC, Operation.DELETE, "name"),
        items=("topics", "topic_names"),
        answers="responses",
        by_controller=True,
        inside="Delete of topics that are named by their ids; Describe, to be told their names",
    ),
)

FIRST_STRICT = 5
FIRST_BY_STATE = 6
_Result = DeleteTopicsResponse.DeletableTopicResult
Nameless = tuple[Any, ErrorCode, str | None]
"""A topic that is refused at once and was not named: its id, the code that answers it, and its name
where the client may know it."""


async def handle(ctx: Context, request: Any) -> Reply:
    names, ids, nameless = _asked_for(ctx, request)
    refusal = _refusal(ctx)
    if refusal is not None:
        refused = [(topic_id, refusal, None) for topic_id, _, _ in nameless]
        return _answer(names, ids, dict.fromkeys(names, (refusal, None)), refused)
    outcomes: dict[str, Outcome] = {}
    pending = {}
    metadata = ctx.services.metadata
    quota = mutation_quota(ctx, strict=ctx.version >= FIRST_STRICT)
    for name in dict.fromkeys(names):
        outcomes[name] = SUCCESS
        if not metadata.has_topic(name):
            detail = f"topic {name!r} does not exist"
            outcomes[name] = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, detail)
            continue
        try:
            quota.charge(len(metadata.partitions_of(name)))
            await topics.delete(ctx.services, name)
        except ApiError as e:
            outcomes[name] = (e.code, e.detail)
            continue
        pending[name] = GONE

    def answer(found: Mapping[str, Outcome]) -> Response:
        return throttled(ctx, quota, _answer(names, ids, found, nameless))

    if not pending:
        return answer(outcomes)
    if request.timeout_ms <= 0:
        return answer({**outcomes, **dict.fromkeys(pending, TIMED_OUT)})
    return Delayed(TopicWait(ctx.services, pending, outcomes, request.timeout_ms, answer))


def _asked_for(ctx: Context, request: Any) -> tuple[list[str], dict[str, Any], list[Nameless]]:
    """The names, the ids by which topics were named, and the topics that are refused at once; a
    name given twice is answered twice."""
    if ctx.version < FIRST_BY_STATE:
        return list(request.topic_names), {}, []
    names = []
    ids: dict[str, Any] = {}
    nameless: list[Nameless] = []
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    for topic in request.topics:
        has_id = topic.topic_id is not None and topic.topic_id.int != 0
        if has_id and topic.name is not None:
            raise ApiError(ErrorCode.INVALID_REQUEST, "a topic has both a name and an id")
        if topic.name is not None:
            names.append(topic.name)
            continue
        # as in Kafka, where nobody has the right to delete a topic of no name
        name = ctx.services.metadata.topic_of(topic.topic_id.bytes) if has_id else None
        if name is None:
            code = ErrorCode.UNKNOWN_TOPIC_ID if has_id else denied
            nameless.append((topic.topic_id, code, None))
        elif not ctx.allows(Operation.DESCRIBE, ResourceType.TOPIC, name):
            nameless.append((topic.topic_id, denied, None))
        elif not ctx.allows(Operation.DELETE, ResourceType.TOPIC, name):
            nameless.append((topic.topic_id, denied, name))
        else:
            names.append(name)
            ids[name] = topic.topic_id
    return names, ids, nameless


def _refusal(ctx: Context) -> ErrorCode | None:
    if not ctx.services.is_controller:
        return ErrorCode.NOT_CONTROLLER
    if not ctx.services.config.delete_topic_enable:
        return ErrorCode.INVALID_REQUEST if ctx.version < 3 else ErrorCode.TOPIC_DELETION_DISABLED
    return None


def _answer(
    names: Sequence[str],
    ids: Mapping[str, Any],
    outcomes: Mapping[str, Outcome],
    nameless: Sequence[Nameless],
) -> Response:
    results = [
        _Result(name=name, topic_id=ids.get(name), error_code=int(code), error_message=message)
        for name, (code, message) in ((name, outcomes[name]) for name in names)
    ]
    results += [_Result(name=n, topic_id=i, error_code=int(code)) for i, code, n in nameless]
    errors = error_names([*(c for c, _ in outcomes.values()), *(code for _, code, _ in nameless)])
    return Response(DeleteTopicsResponse(responses=results), error_names=errors)


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    if ctx.version < FIRST_BY_STATE:
        results = [_Result(name=name, error_code=int(code)) for name in request.topic_names]
    else:
        results = [
            _Result(name=topic.name, topic_id=topic.topic_id, error_code=int(code))
            for topic in request.topics
        ]
    return Response(DeleteTopicsResponse(responses=results), error_names=(code.name,))
