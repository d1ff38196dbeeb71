"""DescribeTransactions, API 65, v0: the state of transactional ids (KIP-664).

While a transaction is being committed or aborted, its partitions are those that still wait for
their marker.
"""

from __future__ import annotations

from typing import Any

from highwater.broker.context import Access, Api, Context, Reply, of
from highwater.broker.coordinator.transaction.transaction import Transaction
from highwater.broker.request.response import Response
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.security.acls import Operation, ResourceType
from highwater.kafka.wire.messages import DescribeTransactionsResponse

API = Api(
    key=65,
    name="DescribeTransactions",
    versions=(0, 0),
    access=Access(
        each=of(ResourceType.TRANSACTIONAL_ID, Operation.DESCRIBE, ""),
        items=("transactional_ids",),
        answers="transaction_states",
    ),
)

_State = DescribeTransactionsResponse.TransactionState


def handle(ctx: Context, request: Any) -> Reply:
    states = []
    names: dict[str, None] = {}
    for name in request.transactional_ids:
        try:
            found = ctx.services.transactions.describe(name)
            if found is None or found.stored is None:
                raise ApiError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
            states.append(_describe(ctx, found))
        except ApiError as e:
            states.append(_failed(name, e.code))
            names[e.code.name] = None
    return Response(
        DescribeTransactionsResponse(transaction_states=states), error_names=tuple(names)
    )


def _describe(ctx: Context, found: Transaction) -> Any:
    stored = found.stored
    assert stored is not None
    topics: dict[str, list[int]] = {}
    for tp in found.unmarked if stored.state.is_prepared else stored.partitions:
        if not ctx.allows(Operation.DESCRIBE, ResourceType.TOPIC, tp.topic):
            continue
        topics.setdefault(tp.topic, []).append(tp.partition)
    return _State(
        error_code=0,
        transactional_id=found.transactional_id,
        transaction_state=stored.state.label,
        transaction_timeout_ms=stored.timeout_ms,
        transaction_start_time_ms=stored.started_ms,
        producer_id=stored.producer_id,
        producer_epoch=stored.epoch,
        topics=[_State.TopicData(topic=t, partitions=sorted(ps)) for t, ps in topics.items()],
    )


def _failed(name: str, code: ErrorCode) -> Any:
    return _State(error_code=int(code), transactional_id=name, transaction_state="", topics=[])


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    states = [_failed(name, code) for name in request.transactional_ids]
    answer = DescribeTransactionsResponse(transaction_states=states)
    return Response(answer, error_names=(code.name,))
