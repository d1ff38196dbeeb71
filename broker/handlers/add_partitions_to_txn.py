"""AddPartitionsToTxn, API 24, v0-5: partitions join a transaction.

Transaction coordinators are not built: COORDINATOR_NOT_AVAILABLE, which clients repeat.
v4 lets brokers ask for several transactions at once (KIP-890).
"""

from __future__ import annotations

from typing import Any

from broker.context import Api, Context, Reply, Response
from highwater.common.errors import ErrorCode
from highwater.common.wire.messages import AddPartitionsToTxnResponse

API = Api(key=24, name="AddPartitionsToTxn", versions=(0, 5))

FIRST_BATCHED = 4
_Transaction = AddPartitionsToTxnResponse.AddPartitionsToTxnResult
_Topic = _Transaction.AddPartitionsToTxnTopicResult
_Partition = _Topic.AddPartitionsToTxnPartitionResult


def handle(ctx: Context, request: Any) -> Reply:
    return error_response(ctx, request, ErrorCode.COORDINATOR_NOT_AVAILABLE)


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    if ctx.version < FIRST_BATCHED:
        answer = AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=_topics(request.v3_and_below_topics, code)
        )
        return Response(answer, error_names=(code.name,))
    results = [
        _Transaction(
            transactional_id=transaction.transactional_id,
            topic_results=_topics(transaction.topics, code),
        )
        for transaction in request.transactions
    ]
    answer = AddPartitionsToTxnResponse(error_code=0, results_by_transaction=results)
    return Response(answer, error_names=(code.name,))


def _topics(topics: Any, code: ErrorCode) -> list[Any]:
    return [
        _Topic(
            name=topic.name,
            results_by_partition=[
                _Partition(partition_index=p, partition_error_code=int(code))
                for p in topic.partitions
            ],
        )
        for topic in topics
    ]
