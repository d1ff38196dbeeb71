"""Produce, API 0, v0-13: appends record batches as leader, and answers as `acks` asks.

acks=0: no answer; an error closes the connection, which tells the client that its metadata is old.
acks=1: answered after the local append.  acks=-1: waits in the purgatory until the HW has passed
the last appended offset, that is until every member of the ISR has it; refused below
min.insync.replicas.  Anything else: INVALID_REQUIRED_ACKS.

Each batch is first examined (`log/validation.py`), which for a large or compressed one takes
several steps; the handler waits for that, and with it the connection.

A batch that would begin a transaction in its partition waits before all that: its transaction
coordinator is asked whether the partition belongs to one (KIP-890).  If the coordinator cannot be
asked at the moment, the answer is NOT_ENOUGH_REPLICAS, upon which every client tries again.  From
v12 on the coordinator adds the partition (transaction.version 2).  While the markers of the
transaction before are written it cannot, and is asked again for a moment, because the client would
only do the same.

ApiVersions offers v0 as well, as older librdkafka stops compressing otherwise; v0-2 carry the old
message formats and are answered UNSUPPORTED_FOR_MESSAGE_FORMAT.  From v13 on topics are named by
their ids; one that no topic has is UNKNOWN_TOPIC_ID.  Deviation: no down-conversion of any kind.
"""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import trio

from highwater.base.event_loop import monotonic_ms
from highwater.broker.context import Access, Api, Context, Delayed, Reply
from highwater.broker.coordinator.transaction.transaction import Identity
from highwater.broker.current_leaders import current_leader, endpoints
from highwater.broker.log.parts import Origin
from highwater.broker.log.validation import Examination, Work, examine
from highwater.broker.log.verification import Verification
from highwater.broker.replica.partition import Partition
from highwater.broker.replica.replica_manager import ReplicaManager
from highwater.broker.request.purgatory import DelayedOperation
from highwater.broker.request.response import NoResponse, Response
from highwater.kafka.errors import ApiError, ErrorCode, RecordsRefused
from highwater.kafka.security.acls import Operation, ResourceType
from highwater.kafka.topic_ids import is_unknown
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.codec import BadMessage
from highwater.kafka.wire.node_endpoints import endpoint_tags
from highwater.kafka.wire.produce import (
    ABORTABLE,
    FIRST_WITH_BATCHES,
    TELLS_LEADER,
    PartitionResult,
    ProduceRequest,
    parse_produce,
    produce_response,
)
from highwater.kafka.wire.records import (
    CRC_START,
    HEADER_SIZE,
    MAGIC,
    MAGIC_OFFSET,
    TRANSACTIONAL,
    BatchHeader,
    parse_header,
)

if TYPE_CHECKING:
    from highwater.broker.log.log import Log

API = Api(
    key=0,
    name="Produce",
    versions=(0, 13),
    raw=True,
    access=Access(inside="Write of each topic, and of the transactional id"),
)

ALL = -1
ADDS_PARTITIONS = 12
AGAIN_MS, MARKERS_WITHIN_MS = 20, 100
"""How often, and how long, a coordinator is asked that still has markers to write.  Apache Kafka's
add.partitions.to.txn.retry.backoff.ms and add.partitions.to.txn.retry.backoff.max.ms."""
_ASK_AGAIN = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
_NOTHING = memoryview(b"")
INTERNAL_TOPICS = ("__consumer_offsets", "__transaction_state", "__share_group_state")


def handle(ctx: Context, body: memoryview) -> Reply | Awaitable[Reply]:
    try:
        request = parse_produce(body, ctx.version, ctx.services.metadata.topic_of)
    except (struct.error, IndexError, ValueError) as e:
        raise BadMessage(f"a Produce request that does not parse: {e}") from e
    if request.acks not in (-1, 0, 1):
        error = int(ErrorCode.INVALID_REQUIRED_ACKS)
        results = [PartitionResult(tp, error) for tp, _ in request.partitions]
        return _answer(ctx, results, request.topic_ids)
    hosted = ctx.services.replicas.partitions
    places = [Place(tp, records, hosted.get(tp)) for tp, records in request.partitions]
    if request.transactional_id is None and any(map(_transactional, places)):
        error = int(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        results = [PartitionResult(p.tp, error) for p in places]
        return _reply(request, _answer(ctx, results, request.topic_ids))
    if ctx.services.authorizer is not None:
        _authorize(ctx, request, places)
    if request.topic_ids:
        _compare_ids(places, request.topic_ids)
    if ctx.version < FIRST_WITH_BATCHES:
        return _of_old_format(ctx, request, places)
    wall_ms, examining = ctx.services.world.clock.wall_ms(), False
    for place in places:
        place.examine(ctx.version, wall_ms)
        examining = examining or place.examination is not None
    if examining:
        return _after_examination(ctx, request, places)
    return _append_or_ask(ctx, request, places)


def _compare_ids(places: Sequence[Place], topic_ids: Mapping[str, bytes]) -> None:
    """Takes their partition from places whose id is unknown, or whose log has another id."""
    for place in places:
        named = topic_ids[place.tp.topic]
        known = place.log.topic_id if place.log is not None else None
        if is_unknown(place.tp.topic) or known not in (None, named):
            place.partition, place.error = None, ApiError(ErrorCode.UNKNOWN_TOPIC_ID)


def _of_old_format(ctx: Context, request: ProduceRequest, places: list[Place]) -> Reply:
    detail = f"Produce v{ctx.version} carries a message format older than v2"
    for place in places:
        if place.partition is not None:
            place.error = ApiError(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, detail)
    return _reply(request, _append_all(ctx, request, places))


def _authorize(ctx: Context, request: ProduceRequest, places: Sequence[Place]) -> None:
    """Takes their partition from the places that the client may not write to.

    Records of a transaction need the transactional id; without it nothing is appended.
    """
    name, of_id = request.transactional_id, ResourceType.TRANSACTIONAL_ID
    code = ErrorCode.NONE
    if (
        name is not None
        and not ctx.allows(Operation.WRITE, of_id, name)
        and any(map(_transactional, places))
    ):
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    for place in places:
        denied = code
        if not denied and not ctx.allows(Operation.WRITE, ResourceType.TOPIC, place.tp.topic):
            denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if denied:
            place.partition, place.error = None, ApiError(denied)


def _transactional(place: Place) -> bool:
    records = place.records
    if records is None or len(records) < HEADER_SIZE or records[MAGIC_OFFSET] != MAGIC:
        return False
    return bool(records[CRC_START + 1] & TRANSACTIONAL)


class Place:
    """One partition of a request, on its way to the append.

    The partition is looked up once.  If it goes away while the request waits, it no longer leads,
    and the append says so.
    """

    __slots__ = (
        "error", "examination", "examined", "partition", "records", "tp", "verification", "work",
    )  # fmt: skip

    def __init__(
        self, tp: TopicPartition, records: memoryview | None, partition: Partition | None
    ) -> None:
        self.tp = tp
        self.records = records
        self.partition = partition
        """None: this broker has no replica of it."""
        self.examination: Examination | None = None
        """What is left of it."""
        self.work: Work | None = None
        """For a worker thread, before the examination goes on."""
        self.examined: BatchHeader | None = None
        """The header of a batch that can be appended."""
        self.verification: Verification | None = None
        """For a batch that begins a transaction."""
        self.error: ApiError | None = None
        """The reason why it is not appended."""

    @property
    def log(self) -> Log | None:
        """The log for the append; None: the append will say what is wrong."""
        partition = self.partition
        return partition.log if partition is not None and partition.is_leader else None

    def examine(self, version: int, wall_ms: int) -> None:
        """Begins to look into the batch; it mostly ends at once."""
        partition = self.partition
        if partition is None or self.tp.topic in INTERNAL_TOPICS:
            return  # the append says what is wrong
        try:
            config = partition.leader_log().config
        except ApiError as e:
            self.error = e
            return
        self.examination = examine(self.records or _NOTHING, config, wall_ms, version)
        self.examine_on()

    def examine_on(self) -> None:
        """The next step of the examination; sets `work`, or ends with `examined` or `error`."""
        assert self.examination is not None
        try:
            self.work = next(self.examination)
            return
        except StopIteration as end:
            self.records, self.examined = end.value
        except ApiError as e:
            self.error = e
        self.examination = self.work = None


def _append_or_ask(ctx: Context, request: ProduceRequest, places: list[Place]) -> Reply:
    if request.transactional_id is not None and request.acks != 0:
        return _in_transaction(ctx, request, places)
    return _reply(request, _append_all(ctx, request, places))


async def _after_examination(ctx: Context, request: ProduceRequest, places: list[Place]) -> Reply:
    """Goes on with the examinations, one after the other, and then with the request."""
    for place in places:
        while place.examination is not None:
            if place.work is not None:
                await ctx.services.world.disk.run(place.work)
            else:
                await trio.lowlevel.checkpoint()
            place.examine_on()
    return _append_or_ask(ctx, request, places)


def _reply(request: ProduceRequest, done: Response | DelayedProduce) -> Reply:
    if request.acks == 0:
        return NoResponse(close=isinstance(done, Response) and bool(done.error_names))
    return done if isinstance(done, Response) else Delayed(done)


def _append_all(
    ctx: Context, request: ProduceRequest, places: list[Place]
) -> Response | DelayedProduce:
    replicas = ctx.services.replicas
    results: list[PartitionResult] = []
    waiting: dict[int, Wait] = {}
    for place in places:
        result, wait = append(replicas, place, request.acks)
        if wait is not None:
            waiting[len(results)] = wait
        results.append(result)
    if not waiting:
        return _answer(ctx, results, request.topic_ids)
    return DelayedProduce(ctx, results, waiting, request)


def _in_transaction(ctx: Context, request: ProduceRequest, places: list[Place]) -> Reply:
    operation = VerifiedProduce(ctx, request, places)
    operation.ask()
    if not operation.unanswered:
        return _reply(request, _append_all(ctx, request, places))
    operation.keep_records()
    return Delayed(operation)


class Wait:
    """One partition of an acks=all request: appended, and not known to be committed."""

    __slots__ = ("generation", "partition", "required_offset")

    def __init__(self, partition: Partition, required_offset: int) -> None:
        self.partition = partition
        self.required_offset = required_offset
        self.generation = partition.generation


def append(
    replicas: ReplicaManager, place: Place, acks: int
) -> tuple[PartitionResult, Wait | None]:
    """Appends one partition's batch, which was examined."""
    tp, records, stats = place.tp, place.records or _NOTHING, replicas.topic_stats
    hosted = False
    try:
        partition = place.partition
        if partition is None and place.error is not None:
            raise place.error
        if tp.topic in INTERNAL_TOPICS:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        if partition is None:
            partition = replicas.partition(tp)
        hosted = True
        stats.produce_asked(tp.topic)
        if place.error is not None:
            partition.writable_log(acks)
            raise place.error
        info = replicas.append(
            partition,
            records,
            acks,
            Origin.CLIENT,
            examined=place.examined,
            verification=place.verification,
        )
    except ApiError as e:
        if hosted:
            stats.produce_failed(tp.topic, e, len(records))
        refused = e.records if isinstance(e, RecordsRefused) else ()
        return PartitionResult(tp, int(e.code), message=e.detail, refused=refused), None
    stats.produced(tp.topic, info.last_offset - info.base_offset + 1, len(records))
    result = PartitionResult(
        tp, 0, info.base_offset, info.log_append_time_ms, info.log_start_offset
    )
    wait = Wait(partition, info.last_offset + 1) if acks == ALL else None
    return result, wait


def _cannot_verify(code: ErrorCode, version: int) -> ApiError:
    if code is ErrorCode.CONCURRENT_TRANSACTIONS and version >= ADDS_PARTITIONS:
        return ApiError(code, "the markers of the producer's last transaction are not written yet")
    if code in _ASK_AGAIN:
        detail = f"the transaction coordinator could not be asked for the partition: {code.name}"
        return ApiError(ErrorCode.NOT_ENOUGH_REPLICAS, detail)
    return ApiError(code, "the partition does not belong to the producer's transaction")


def _answer(
    ctx: Context, results: Sequence[PartitionResult], topic_ids: Mapping[str, bytes]
) -> Response:
    names = tuple(ErrorCode(r.error).name for r in results if r.error)
    if names and ctx.version >= TELLS_LEADER:
        results = [_with_leader(ctx, r) for r in results]
    body = produce_response(list(results), ctx.version, topic_ids=topic_ids)
    known = endpoints(ctx, (r.leader for r in results)) if names else []
    parts = [body[:-1], endpoint_tags(known)] if known else [body]
    return Response(parts=parts, error_names=names)


def _with_leader(ctx: Context, result: PartitionResult) -> PartitionResult:
    """Names the leader where this broker is not it."""
    if result.error != ErrorCode.NOT_LEADER_OR_FOLLOWER:
        return result
    return result._replace(leader=current_leader(ctx, result.tp))


class DelayedProduce(DelayedOperation):
    """Waits for each appended partition's HW.  A duplicate batch waits as the first one did."""

    kind: ClassVar[str] = "Produce"
    overlaps: ClassVar[bool] = True

    def __init__(
        self,
        ctx: Context,
        results: list[PartitionResult],
        waiting: dict[int, Wait],
        request: ProduceRequest,
    ) -> None:
        self.ctx = ctx
        self.results = results
        self.waiting = waiting
        self.keys = [w.partition.tp for w in waiting.values()]
        self.topic_ids = request.topic_ids
        self.timeout_ms = request.timeout_ms

    def try_complete(self) -> Response | None:
        for index, wait in list(self.waiting.items()):
            code = wait.partition.committed(wait.required_offset, wait.generation)
            if code is not None:
                self._settle(index, code)
        return None if self.waiting else _answer(self.ctx, self.results, self.topic_ids)

    def on_expire(self) -> Response:
        for index in list(self.waiting):
            self._settle(index, ErrorCode.REQUEST_TIMED_OUT)
        return _answer(self.ctx, self.results, self.topic_ids)

    def _settle(self, index: int, code: ErrorCode) -> None:
        wait = self.waiting.pop(index)
        if code is ErrorCode.NONE:
            assert wait.partition.holds_committed(wait.required_offset, wait.generation), (
                "invariant 4"
            )
        else:
            self.results[index] = PartitionResult(self.results[index].tp, int(code))


class VerifiedProduce(DelayedOperation):
    """Waits for transaction coordinators, then appends, then waits like any other Produce."""

    kind: ClassVar[str] = "Produce"

    def __init__(self, ctx: Context, request: ProduceRequest, places: list[Place]) -> None:
        self.ctx = ctx
        self.request = request
        self.places = places
        self.asked: dict[TopicPartition, Place] = {}
        self.unanswered = 0
        self.inner: DelayedProduce | None = None
        self._adds = ctx.version >= ADDS_PARTITIONS
        self._until_ms = monotonic_ms() + MARKERS_WITHIN_MS
        self._answered = object()
        self.keys = [self._answered, *(place.tp for place in places)]
        self.timeout_ms = request.timeout_ms

    def ask(self) -> None:
        """Asks about every batch that begins a transaction in its partition."""
        self._ask(self.places)

    def _ask(self, places: Sequence[Place]) -> None:
        questions: dict[Identity, list[TopicPartition]] = {}
        for place in places:
            producer = self._begin(place)
            if producer is not None:
                questions.setdefault(producer, []).append(place.tp)
                self.asked[place.tp] = place
        self.unanswered += len(questions)
        name = self.request.transactional_id or ""
        verifier = self.ctx.services.transactions.verifier
        for producer, tps in questions.items():
            verifier.ask(name, producer, tps, self._hear, add=self._adds)

    def _begin(self, place: Place) -> Identity | None:
        """The producer, if the batch begins a transaction; the append reports any error."""
        records, partition = place.records, place.partition
        if records is None or len(records) < HEADER_SIZE or partition is None or place.log is None:
            return None
        header = parse_header(records)
        if header.magic != MAGIC or not header.is_transactional or header.producer_id < 0:
            return None
        producer = Identity(header.producer_id, header.producer_epoch)
        place.verification = partition.verify_transaction(
            producer.producer_id,
            producer.epoch,
            header.base_sequence,
            self.ctx.services.world.clock.wall_ms(),
            always=self._adds,
        )
        return None if place.verification is None else producer

    def _hear(self, codes: Mapping[TopicPartition, ErrorCode]) -> None:
        if self._is_too_early(codes):
            self.ctx.services.purgatories.call_at(
                monotonic_ms() + AGAIN_MS, partial(self._ask_again, tuple(codes))
            )
            return
        for tp, code in codes.items():
            if code is not ErrorCode.NONE:
                self.asked[tp].error = self.asked[tp].error or self._refusal(code)
        self._one_less()

    def _is_too_early(self, codes: Mapping[TopicPartition, ErrorCode]) -> bool:
        """Whether markers are still written, and there is time to wait for them."""
        early = self._adds and ErrorCode.CONCURRENT_TRANSACTIONS in codes.values()
        return early and monotonic_ms() + AGAIN_MS <= self._until_ms

    def _ask_again(self, tps: Sequence[TopicPartition]) -> None:
        # with a new verification: the marker that was waited for has dropped the one before
        self._ask([self.asked[tp] for tp in tps])
        self._one_less()

    def _one_less(self) -> None:
        self.unanswered -= 1
        if not self.unanswered:
            self.ctx.services.purgatories.check(self.kind, (self._answered,))

    def _refusal(self, code: ErrorCode) -> ApiError:
        if code is ErrorCode.INVALID_TXN_STATE and self.ctx.version >= ABORTABLE:
            code = ErrorCode.TRANSACTION_ABORTABLE
        return _cannot_verify(code, self.ctx.version)

    def keep_records(self) -> None:
        """Copies the records: during the wait the request's buffer may be used again."""
        for place in self.places:
            if place.records is not None:
                place.records = memoryview(bytearray(place.records))

    def try_complete(self) -> Response | None:
        if self.unanswered:
            return None
        if self.inner is None:
            done = _append_all(self.ctx, self.request, self.places)
            if isinstance(done, Response):
                return done
            self.inner = done
        return self.inner.try_complete()

    def on_expire(self) -> Response:
        if self.inner is not None:
            return self.inner.on_expire()
        error = int(ErrorCode.REQUEST_TIMED_OUT)
        results = [PartitionResult(place.tp, error) for place in self.places]
        return _answer(self.ctx, results, self.request.topic_ids)
