"""AddPartitionsToTxn, API 24, v0-5: adds partitions to a transaction, or looks for them in one.

v0-3 are a producer's: it must name a partition here before it writes to it.  If one of the
partitions does not exist none is added (OPERATION_NOT_ATTEMPTED at the others).  A producer has
no partition of an internal topic (TOPIC_AUTHORIZATION_FAILED).  From v4 on brokers ask, for many
transactions at once: may this partition take a batch of that transaction (verifyOnly; KIP-890)?
Without verifyOnly they add it, for a client of transaction.version 2.  v5 adds an error code for
the answer, TRANSACTION_ABORTABLE.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from highwater.broker.context import Access, Api, Context, Delayed, Reply
from highwater.broker.coordinator.pending import Waiting
from highwater.broker.coordinator.transaction.records import EPOCH_BUMPED
from highwater.broker.coordinator.transaction.transaction import Identity
from highwater.broker.request.response import Response
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.security.acls import Operation, ResourceType
from highwater.kafka.topic_names import INTERNAL_TOPICS
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.messages import AddPartitionsToTxnResponse

API = Api(
    key=24,
    name="AddPartitionsToTxn",
    versions=(0, 5),
    access=Access(inside="the id and its topics (v0-3), or ClusterAction (from v4)"),
)

FIRST_WITH_FENCED = 2
FIRST_BATCHED = 4
_Transaction = AddPartitionsToTxnResponse.AddPartitionsToTxnResult
_Topic = _Transaction.AddPartitionsToTxnTopicResult
_Partition = _Topic.AddPartitionsToTxnPartitionResult

Codes = Mapping[TopicPartition, ErrorCode]


class Asked(NamedTuple):
    """One transaction of a request."""

    transactional_id: str
    producer: Identity
    topics: Any
    verify_only: bool

    @property
    def partitions(self) -> list[TopicPartition]:
        return [TopicPartition(t.name, p) for t in self.topics for p in t.partitions]

    def all(self, code: ErrorCode) -> Codes:
        return dict.fromkeys(self.partitions, code)


def handle(ctx: Context, request: Any) -> Reply:
    if ctx.version >= FIRST_BATCHED and not ctx.allows(
        Operation.CLUSTER_ACTION, ResourceType.CLUSTER
    ):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        refused = AddPartitionsToTxnResponse(error_code=int(code), results_by_transaction=[])
        return Response(refused, error_names=(code.name,))
    asked = _asked(ctx, request)
    together = Together(ctx, asked)
    for index, one in enumerate(asked):
        together.settle(index, _begin(ctx, one, together, index))
    return Delayed(together)


def _asked(ctx: Context, request: Any) -> list[Asked]:
    if ctx.version >= FIRST_BATCHED:
        return [
            Asked(
                t.transactional_id,
                Identity(t.producer_id, t.producer_epoch),
                t.topics,
                bool(t.verify_only),
            )
            for t in request.transactions
        ]
    producer = Identity(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
    return [
        Asked(request.v3_and_below_transactional_id, producer, request.v3_and_below_topics, False)
    ]


def _begin(ctx: Context, one: Asked, together: Together, index: int) -> Codes | None:
    """The answer, or None if it comes later."""
    metadata, transactions = ctx.services.metadata, ctx.services.transactions
    partitions = one.partitions
    wrong = dict.fromkeys(
        (tp for tp in partitions if metadata.partition(tp) is None),
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
    if ctx.version < FIRST_BATCHED:
        if not ctx.allows(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, one.transactional_id):
            return one.all(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        wrong |= {
            tp: ErrorCode.TOPIC_AUTHORIZATION_FAILED
            for tp in partitions
            if tp.topic in INTERNAL_TOPICS
            or not ctx.allows(Operation.WRITE, ResourceType.TOPIC, tp.topic)
        }
    if wrong:
        return {**one.all(ErrorCode.OPERATION_NOT_ATTEMPTED), **wrong}
    try:
        if one.verify_only:
            return transactions.verify(one.transactional_id, one.producer, partitions)

        def render(code: ErrorCode) -> Response:
            together.settle(index, one.all(code))
            ctx.services.purgatories.check(together.kind, together.keys)
            return Response()

        ticket = Waiting(render)
        # only a broker adds by these versions, for a client of transaction.version 2
        version = EPOCH_BUMPED if ctx.version >= FIRST_BATCHED else 0
        transactions.add_partitions(one.transactional_id, one.producer, partitions, ticket, version)
        ctx.services.purgatories.submit(ticket, lambda _: None)
    except ApiError as e:
        return one.all(e.code)
    return together.codes[index]


class Together(Waiting):
    """Answers when each transaction of the request has its answer."""

    def __init__(self, ctx: Context, asked: list[Asked]) -> None:
        super().__init__(lambda codes: _response(ctx, asked, codes))
        self.codes: list[Codes | None] = [None] * len(asked)

    def settle(self, index: int, codes: Codes | None) -> None:
        if codes is not None:
            self.codes[index] = codes

    def try_complete(self) -> Response | None:
        return None if any(codes is None for codes in self.codes) else self.render(self.codes)


def _response(ctx: Context, asked: Iterable[Asked], answers: Iterable[Codes]) -> Response:
    names: dict[str, None] = {}
    results = []
    for one, codes in zip(asked, answers, strict=True):
        known = {tp: _known(ctx, code) for tp, code in codes.items()}
        names.update((code.name, None) for code in known.values() if code)
        results.append((one, _topics(one.topics, known)))
    if ctx.version < FIRST_BATCHED:
        answer = AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results[0][1])
    else:
        answer = AddPartitionsToTxnResponse(
            error_code=0,
            results_by_transaction=[
                _Transaction(transactional_id=one.transactional_id, topic_results=topics)
                for one, topics in results
            ],
        )
    return Response(answer, error_names=tuple(names))


def _known(ctx: Context, code: ErrorCode) -> ErrorCode:
    """Replaces codes that old clients do not know."""
    if code is ErrorCode.PRODUCER_FENCED and ctx.version < FIRST_WITH_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


def _topics(topics: Any, codes: Codes) -> list[Any]:
    return [
        _Topic(
            name=topic.name,
            results_by_partition=[
                _Partition(
                    partition_index=p,
                    partition_error_code=int(codes[TopicPartition(topic.name, p)]),
                )
                for p in topic.partitions
            ],
        )
        for topic in topics
    ]


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    asked = _asked(ctx, request)
    return _response(ctx, asked, [one.all(code) for one in asked])
