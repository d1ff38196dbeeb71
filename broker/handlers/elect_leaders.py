"""ElectLeaders, API 43, v0-2: elects preferred leaders, or (v1) a leader from outside the ISR.

Only the controller does it.  An unclean election is for partitions without a leader.  The answer
waits until the metadata cache shows the leaders.  For a request of all partitions the answer leaves
out those that needed none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from highwater.broker.admin.mutations import by_topic, error_names
from highwater.broker.admin.topic_waits import ElectionWait, Outcome
from highwater.broker.context import Access, Api, Context, Delayed, Reply, cluster
from highwater.broker.request.response import Response
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.security.acls import Operation
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.messages import ElectLeadersResponse

API = Api(
    key=43, name="ElectLeaders", versions=(0, 2), access=Access(whole=(cluster(Operation.ALTER),))
)

PREFERRED, UNCLEAN = 0, 1
_Result = ElectLeadersResponse.ReplicaElectionResult
_Partition = _Result.PartitionResult


async def handle(ctx: Context, request: Any) -> Reply:
    kind = request.election_type if ctx.version >= 1 else PREFERRED
    if kind not in (PREFERRED, UNCLEAN):
        return error_response(ctx, request, ErrorCode.INVALID_REQUEST)
    asked = request.topic_partitions
    metadata = ctx.services.metadata
    if asked is not None:
        partitions = [TopicPartition(t.topic, p) for t in asked for p in t.partitions]
    else:
        partitions = [tp for tp, _ in metadata.all_partitions()]
    try:
        outcomes = await ctx.services.controller.elect_leaders(partitions, kind == UNCLEAN)
    except ApiError as e:
        return error_response(ctx, request, e.code)
    if asked is None:
        needless = ErrorCode.ELECTION_NOT_NEEDED
        outcomes = {tp: o for tp, o in outcomes.items() if o[0] is not needless}
    expected: dict[TopicPartition, int | None] = {}
    for tp, (code, _) in outcomes.items():
        if code is ErrorCode.NONE:
            known = metadata.partition(tp)
            preferred = known.replicas[0] if known is not None and known.replicas else None
            expected[tp] = preferred if kind == PREFERRED else None
    if not expected:
        return _answer(outcomes)
    return Delayed(ElectionWait(metadata, expected, outcomes, request.timeout_ms, _answer))


def _answer(outcomes: Mapping[TopicPartition, Outcome]) -> Response:
    results = [
        _Result(
            topic=topic,
            partition_result=[
                _Partition(partition_id=p, error_code=int(code), error_message=message)
                for p, (code, message) in partitions
            ],
        )
        for topic, partitions in by_topic(outcomes).items()
    ]
    names = error_names(code for code, _ in outcomes.values())
    answer = ElectLeadersResponse(error_code=0, replica_election_results=results)
    return Response(answer, error_names=names)


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    """The error at the top and at every named partition (v0 has only the latter)."""
    outcomes: dict[TopicPartition, Outcome] = {
        TopicPartition(t.topic, p): (code, None)
        for t in request.topic_partitions or ()
        for p in t.partitions
    }
    answer = _answer(outcomes).message
    answer.error_code = int(code)
    return Response(answer, error_names=(code.name,))
