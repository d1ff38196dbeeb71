"""ShareAcknowledge, API 79, v1-2: a member says what it has done with records that it acquired.

The answer comes when the share coordinator has stored it; what cannot be stored is as if it had
never been asked.  Epoch -1 closes the member's session, and releases what it still has.  v2 brought
renewals of locks (KIP-1222), which are not stored.  ShareFetch carries acknowledgements, too.

The API is offered while every registered broker announces share.version, and is UNSUPPORTED_VERSION
at other times.

Source: KafkaApis.handleShareAcknowledgeRequest, handleAcknowledgements of Apache Kafka 4.2.
Deviations: where this broker does not lead the partition, the answer says so, and who does; Kafka
says UNKNOWN_TOPIC_OR_PARTITION.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, Sequence
from itertools import count
from typing import Any, ClassVar
from uuid import UUID

from highwater.broker.context import Access, Api, Context, Delayed, Reply, of
from highwater.broker.current_leaders import current_leader, endpoints
from highwater.broker.request.purgatory import DelayedOperation
from highwater.broker.request.response import Response
from highwater.broker.share.persister import SharePartitionKey
from highwater.broker.share.sessions import FINAL_EPOCH, INITIAL_EPOCH, TopicIdPartition
from highwater.broker.share.share_partition import RENEW, Acknowledgement
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.features import SHARE_VERSION
from highwater.kafka.security.acls import Operation, ResourceType
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.messages import ShareAcknowledgeResponse

API = Api(
    key=79,
    name="ShareAcknowledge",
    versions=(1, 2),
    access=Access(
        whole=(of(ResourceType.GROUP, Operation.READ, "group_id"),),
        inside="Read of each topic",
    ),
)

NO_TIMEOUT_MS = 2**31 - 1
"""The share coordinator's answers have a time-out of their own."""
LONGEST_MEMBER_ID = 36
WITH_RENEWALS = 2
OF_LEADER = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
_numbers = count()

_Topic = ShareAcknowledgeResponse.ShareAcknowledgeTopicResponse
_Partition = _Topic.PartitionData
_Leader = _Partition.LeaderIdAndEpoch


def handle(ctx: Context, request: Any) -> Reply:
    share = ctx.services.share
    check(ctx, request)
    group, member, epoch = request.group_id, request.member_id, request.share_session_epoch
    if epoch == INITIAL_EPOCH:
        raise ApiError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
    session = share.sessions.use(group, member, epoch)

    def answer(results: Results) -> Response:
        if epoch == FINAL_EPOCH:
            share.close(session)
        return _response(ctx, group, results)

    ticket = Ticket(ctx)
    acks = Acknowledgements(ctx, request, ticket.look)
    ticket.answer = lambda: answer(acks.results) if acks.done else None
    acks.begin()
    return Delayed(ticket)


def check(ctx: Context, request: Any) -> None:
    """What ShareFetch and ShareAcknowledge have in common; raises ApiError."""
    if SHARE_VERSION not in dict(ctx.services.metadata.features):
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
    if request.group_id is None:
        raise ApiError(ErrorCode.INVALID_REQUEST)
    if not request.member_id or len(request.member_id) > LONGEST_MEMBER_ID:
        raise ApiError(ErrorCode.INVALID_REQUEST)


def named(ctx: Context, topic_id: bytes, partition: int) -> TopicPartition:
    """The partition by its topic's name.  Raises ApiError where there is none, or the client may
    not read it."""
    topic = ctx.services.metadata.topic_of(topic_id)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
    if not ctx.allows(Operation.READ, ResourceType.TOPIC, topic):
        raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    tp = TopicPartition(topic, partition)
    if ctx.services.metadata.partition(tp) is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return tp


class Ticket(DelayedOperation):
    """A request that waits until what it has begun is done."""

    kind: ClassVar[str] = "ShareAcknowledge"

    def __init__(self, ctx: Context) -> None:
        self.keys: Sequence[Hashable] = (next(_numbers),)
        self.timeout_ms = NO_TIMEOUT_MS
        self.answer: Callable[[], Response | None] = lambda: None
        self._completions = ctx.services.completions
        self._failure: Exception | None = None

    def look(self) -> None:
        """Called when something is done."""
        self._completions.add(self.kind, self.keys)

    def fail(self, error: Exception) -> None:
        self._failure = error
        self.look()

    def try_complete(self) -> Response | None:
        if self._failure is not None:
            raise self._failure
        return self.answer()

    def on_expire(self) -> Response:
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT)


def in_background(ctx: Context, job: Callable[[], Awaitable[Reply]]) -> Delayed:
    """Carries out a request that has to ask share coordinators, which may take long.  A handler
    that waited would keep followers' fetches waiting, for which a coordinator may wait."""
    ticket, found = Ticket(ctx), list[Response]()
    ticket.answer = lambda: found[0] if found else None

    async def carry_out() -> None:
        try:
            reply = await job()
        except Exception as e:
            ticket.fail(e)
            return
        assert isinstance(reply, Response), "it has waited"
        found.append(reply)
        ticket.look()

    ctx.services.share.start(carry_out)
    return Delayed(ticket)


Results = dict[TopicIdPartition, ApiError | None]


class Acknowledgements:
    """Those of one request: begun together, and done when each partition has its result."""

    def __init__(self, ctx: Context, request: Any, done: Callable[[], None]) -> None:
        self.results: Results = {}
        self._ctx = ctx
        self._request = request
        self._done = done
        self._pending = 0
        self._begun = False

    @property
    def done(self) -> bool:
        return not self._pending

    def begin(self) -> None:
        to_do = list(self._asked())
        self._pending = len(to_do)
        empty = []
        for key, acks in to_do:
            try:
                if self._acknowledge(key, acks):
                    self._begun = True
                else:
                    empty.append(key)
            except ApiError as e:
                self._settle(key, e)
        for key in empty:
            self._settle(key, None)
        if not self._begun:  # Kafka leaves them out if nothing is acknowledged
            for key in empty:
                del self.results[key]

    def _asked(self) -> Iterator[tuple[TopicIdPartition, list[Acknowledgement]]]:
        for topic in self._request.topics:
            for p in topic.partitions:
                acks = [
                    Acknowledgement(b.first_offset, b.last_offset, tuple(b.acknowledge_types or ()))
                    for b in p.acknowledgement_batches or ()
                ]
                yield TopicIdPartition(id_of(topic), p.partition_index), acks

    def _acknowledge(self, key: TopicIdPartition, acks: list[Acknowledgement]) -> bool:
        """Begins it; False if there is nothing to acknowledge.  Raises ApiError."""
        ctx, request = self._ctx, self._request
        if ctx.services.metadata.topic_of(key.topic_id) is not None:
            renews = ctx.version >= WITH_RENEWALS and request.is_renew_ack
            _validate(acks, RENEW if renews else RENEW - 1)
        tp = named(ctx, *key)
        if not acks:
            return False
        share, stats = ctx.services.share, ctx.services.replicas.topic_stats
        stats.share_acknowledged(tp.topic, failed=False)
        found = share.loaded(SharePartitionKey(request.group_id, *key), tp)
        lock_ms = share.settings(request.group_id).lock_ms

        def settled(error: ApiError | None) -> None:
            if error is None:
                share.meters.acknowledged(acks)
            else:
                stats.share_acknowledged(tp.topic, failed=True)
            self._settle(key, error)

        found.acknowledge(request.member_id, acks, lock_ms, settled)
        return True

    def _settle(self, key: TopicIdPartition, error: ApiError | None) -> None:
        self.results[key] = error
        self._pending -= 1
        if not self._pending:
            self._done()


def id_of(topic: Any) -> bytes:
    return bytes(16) if topic.topic_id is None else topic.topic_id.bytes


def _validate(acks: Sequence[Acknowledgement], highest: int) -> None:
    """Raises ApiError(INVALID_REQUEST)."""
    end = -1
    for first, last, types in acks:
        fits = len(types) in (1, last - first + 1)
        known = all(0 <= kind <= highest for kind in types)
        if not end <= first <= last or not fits or not known:
            raise ApiError(ErrorCode.INVALID_REQUEST)
        end = last


def leader_of(ctx: Context, key: TopicIdPartition, code: int) -> tuple[int, int] | None:
    """Who leads instead, where an error says that this broker does not."""
    if code not in OF_LEADER:
        return None
    topic = ctx.services.metadata.topic_of(key.topic_id)
    return None if topic is None else current_leader(ctx, TopicPartition(topic, key.partition))


def _response(ctx: Context, group: str, results: Results) -> Response:
    topics: dict[bytes, list[Any]] = {}
    leaders = []
    for key, error in results.items():
        code = int(error.code) if error is not None else 0
        leader = leader_of(ctx, key, code)
        leaders.append(leader)
        topics.setdefault(key.topic_id, []).append(
            _Partition(
                partition_index=key.partition,
                error_code=code,
                error_message=None if error is None else error.detail,
                current_leader=_Leader(
                    leader_id=leader[0] if leader else 0, leader_epoch=leader[1] if leader else 0
                ),
            )
        )
    answer = ShareAcknowledgeResponse(
        error_code=0,
        acquisition_lock_timeout_ms=ctx.services.share.settings(group).lock_ms,
        responses=[
            _Topic(topic_id=UUID(bytes=topic), partitions=found) for topic, found in topics.items()
        ],
        node_endpoints=[
            ShareAcknowledgeResponse.NodeEndpoint(
                node_id=e.broker_id, host=e.host, port=e.port, rack=e.rack
            )
            for e in endpoints(ctx, leaders)
        ],
    )
    return Response(answer, error_names=error_names(e.code for e in results.values() if e))


def error_names(codes: Iterable[int]) -> tuple[str, ...]:
    return tuple(ErrorCode(code).name for code in codes if code)


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    return Response(ShareAcknowledgeResponse(error_code=int(code)), error_names=(code.name,))
