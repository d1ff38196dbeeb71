"""ShareFetch, API 78, v1-2: a member of a share group acquires records, and perhaps says what it
has done with others (KIP-932).

The partitions are those of the member's share session, one of them first in turn.  A fetch
waits until min_bytes can be read from where records are available, or a partition has an error, or
max_wait_ms have passed.  Then it acquires what it can, up to max_records; v2 can make that a limit
in the middle of a batch (KIP-1206).  Whole batches are sent, with the ranges that were acquired.
Acknowledgements are carried out first; the answer waits until they are stored.  A request that
renews locks fetches nothing (KIP-1222).  Epoch -1 closes the session.

The API is offered while every registered broker announces share.version, and is UNSUPPORTED_VERSION
at other times.

Source: KafkaApis.handleShareFetchRequest, DelayedShareFetch, ShareFetchUtils of Apache Kafka 4.2.
Deviations: a client above its quota gets its records, and its connection rests; in Kafka they are
acquired and not sent.  A fetch whose connection has ended acquires nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Sequence
from contextlib import suppress
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from highwater.base.event_loop import monotonic_ms
from highwater.broker.context import Access, Api, Context, Delayed, Reply, of
from highwater.broker.current_leaders import endpoints
from highwater.broker.handlers.share_acknowledge import (
    NO_TIMEOUT_MS,
    WITH_RENEWALS,
    Acknowledgements,
    Ticket,
    check,
    error_names,
    id_of,
    leader_of,
    named,
)
from highwater.broker.log.cold_reads import read_at_once, read_loaded
from highwater.broker.log.segment import walk
from highwater.broker.quota.quota_manager import user_of
from highwater.broker.replica.reading import in_older_segment
from highwater.broker.replica.replica_manager import READ_COMMITTED
from highwater.broker.request.purgatory import DelayedOperation
from highwater.broker.request.response import FileSlice, Response
from highwater.broker.share.acquisition import Acquired, Fetched, LogBatch, Wanted
from highwater.broker.share.persister import SharePartitionKey
from highwater.broker.share.read_batches import log_batches, spanned
from highwater.broker.share.sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    ShareSession,
    TopicIdPartition,
)
from highwater.broker.share.share_partitions import SHARE_FETCH, LedSharePartition
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.security.acls import Operation, ResourceType
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.fetch import CONSUMER_REPLICA_ID, FetchPartition
from highwater.kafka.wire.messages import ShareFetchResponse
from highwater.kafka.wire.records import BatchHeader
from highwater.kafka.wire.share_fetch_answer import SharedPartition, share_fetch_parts
from highwater.world.api import ColdRead

if TYPE_CHECKING:
    from highwater.broker.log.parts import LogSlice
    from highwater.broker.share.share_settings import ShareSettings

API = Api(
    key=78,
    name="ShareFetch",
    versions=(1, 2),
    access=Access(
        whole=(of(ResourceType.GROUP, Operation.READ, "group_id"),),
        inside="Read of each topic",
    ),
)

RECORD_LIMIT = 1
_ANY = -1


def handle(ctx: Context, request: Any) -> Reply | Awaitable[Reply]:
    check(ctx, request)
    renews = ctx.version >= WITH_RENEWALS and request.is_renew_ack
    if renews and any(
        (request.max_bytes, request.min_bytes, request.max_records, request.max_wait_ms)
    ):
        raise ApiError(ErrorCode.INVALID_REQUEST)
    try:
        session = _session(ctx, request)
    except ApiError as e:
        if e.code is not ErrorCode.SHARE_SESSION_LIMIT_REACHED or request.max_wait_ms <= 0:
            raise
        return Delayed(_Refused(partial(error_response, ctx, request, e.code), request))
    ticket = Ticket(ctx)
    acks = Acknowledgements(ctx, request, ticket.look)
    if _acknowledges(request):
        acks.begin()
    nothing = renews or request.share_session_epoch == FINAL_EPOCH
    fetch = FetchOperation(ctx, request, session, () if nothing else session.in_turn())
    fetched: list[Response] = []

    def answer() -> Response | None:
        if not (fetched and acks.done):
            return None
        return _response(ctx, request, session, fetched[0].message, acks)

    def came(response: Response) -> None:
        fetched.append(response)
        ticket.look()

    ticket.answer = answer
    try:
        found = read_at_once(ctx.services.world.disk, fetch.try_complete)
    except ColdRead:
        return _from_disk(fetch, came, ticket)
    if found is None:
        ctx.services.purgatories.submit(fetch, came, ticket.fail)
    else:
        fetched.append(found)
    return Delayed(ticket)


async def _from_disk(
    fetch: FetchOperation, came: Callable[[Response], None], ticket: Ticket
) -> Reply:
    """Waits for the disk, so that the next reads find what they need in memory."""
    services = fetch.ctx.services
    for place in fetch.places:
        failed = partial(services.replicas.disk_failed, place.led.partition)
        await read_loaded(services.world.disk, partial(fetch.warm, place), failed)
    services.purgatories.submit(fetch, came, ticket.fail)
    return Delayed(ticket)


def _acknowledges(request: Any) -> bool:
    return any(p.acknowledgement_batches for t in request.topics for p in t.partitions)


def _session(ctx: Context, request: Any) -> ShareSession:
    """The session with the request's changes; raises ApiError."""
    sessions = ctx.services.share.sessions
    group, member, epoch = request.group_id, request.member_id, request.share_session_epoch
    named_ = [
        TopicIdPartition(id_of(t), p.partition_index) for t in request.topics for p in t.partitions
    ]
    if epoch == INITIAL_EPOCH:
        if _acknowledges(request):
            raise ApiError(ErrorCode.INVALID_REQUEST)
        return sessions.open(group, member, ctx.connection_number, named_)
    session = sessions.use(group, member, epoch)
    if epoch != FINAL_EPOCH:
        forgotten = [
            TopicIdPartition(id_of(t), p)
            for t in request.forgotten_topics_data or ()
            for p in t.partitions
        ]
        session.change(named_, forgotten)
    return session


class _Refused(DelayedOperation):
    """A member that gets no session, and is told so late, as it will ask again at once."""

    kind: ClassVar[str] = SHARE_FETCH

    def __init__(self, answer: Any, request: Any) -> None:
        self.keys: Sequence[Hashable] = ()
        self.timeout_ms = request.max_wait_ms
        self._answer = answer

    def try_complete(self) -> Response | None:
        return None

    def on_expire(self) -> Response:
        response: Response = self._answer()
        return response


class Place(NamedTuple):
    """One partition of a fetch."""

    key: TopicIdPartition
    tp: TopicPartition
    led: LedSharePartition


class Read(NamedTuple):
    """What was read for one place."""

    place: Place
    offset: int
    piece: LogSlice
    headers: list[BatchHeader]
    batches: list[LogBatch]


class FetchOperation(DelayedOperation):
    """The fetch of one request; the message of its answer is a list of SharedPartition."""

    kind: ClassVar[str] = SHARE_FETCH

    def __init__(
        self, ctx: Context, request: Any, session: ShareSession, keys: Sequence[TopicIdPartition]
    ) -> None:
        self.ctx = ctx
        self.request = request
        self.session = session
        self.timeout_ms = min(request.max_wait_ms, NO_TIMEOUT_MS)
        self.places: list[Place] = []
        self._refused: dict[TopicIdPartition, ErrorCode] = {}
        for key in keys:
            try:
                tp = named(ctx, *key)
                led = ctx.services.share.get(SharePartitionKey(request.group_id, *key), tp)
                self.places.append(Place(key, tp, led))
            except ApiError as e:
                self._refused[key] = e.code
        for topic in dict.fromkeys(place.tp.topic for place in self.places):
            ctx.services.replicas.topic_stats[topic].total_share_fetch += 1
        self.keys: Sequence[Hashable] = [k for p in self.places for k in (p.tp, p.led.key)]
        self._max_bytes = self._most_bytes()
        self._asks = bool(self.places and request.max_records > 0 and self._max_bytes > 0)

    @property
    def _settings(self) -> ShareSettings:
        """The group's, which are known for sure when one of its share-partitions is loaded."""
        return self.ctx.services.share.settings(self.request.group_id)

    def _most_bytes(self) -> int:
        services = self.ctx.services
        most: int = min(self.request.max_bytes, services.config.fetch_max_bytes)
        if services.quotas.active:
            user, client = user_of(self.ctx.principal), self.ctx.client_id or ""
            bound = services.quotas.fetch.most(user, client)
            most = most if bound is None else min(most, int(bound))
        return most

    # ------------------------------------------------------------ reading

    def warm(self, place: Place) -> None:
        """Reads what will be read for a place; ColdRead says that it is not in memory."""
        if place.led.can_acquire():
            with suppress(ApiError):
                self._read(place, self._max_bytes, self._max_bytes, True)

    def _read_all(self) -> tuple[list[Read], dict[TopicIdPartition, ErrorCode]]:
        """Reads from where records can be acquired, and gets the errors of those reads."""
        reads, errors = [], {}
        ready = [place for place in self.places if place.led.can_acquire()]
        left = self._max_bytes
        share_of_each = left // len(ready) if ready else 0
        for place in ready:
            try:
                read = self._read(place, share_of_each, left, left == self._max_bytes)
            except ApiError as e:
                errors[place.key] = e.code
                continue
            reads.append(read)
            left = max(left - read.piece.size, 0)
        return reads, errors

    def _read(self, place: Place, most: int, left: int, min_one: bool) -> Read:
        """Raises ApiError."""
        offset = place.led.next_fetch_offset
        replicas = self.ctx.services.replicas
        asked = FetchPartition(place.tp, _ANY, offset, _ANY, _ANY, most, place.key.topic_id)
        isolation = READ_COMMITTED if self._settings.read_committed else 0
        found = replicas.read(asked, left, CONSUMER_REPLICA_ID, isolation, min_one)
        assert found.slice is not None, "it names no epoch, so that no log diverges"
        with replicas.disk_of(place.led.partition):
            piece = found.slice
            end = place.led.last_wanted(self.request.max_records)
            headers = list(
                takewhile(
                    lambda header: header.base_offset <= end,
                    walk(piece.file, piece.position, piece.position + piece.size),
                )
            )
        return Read(place, offset, piece, headers, log_batches(headers, found.aborted or ()))

    def _enough(self, reads: Sequence[Read]) -> bool:
        counted = 0
        for read in reads:
            if in_older_segment(read.piece, read.piece.segment):
                return True
            counted += max(read.piece.size, min(read.piece.available, self._max_bytes))
        return bool(counted >= min(self.request.min_bytes, self._max_bytes))

    # ------------------------------------------------------------ answering

    def try_complete(self) -> Response | None:
        if self.session.closed or not self._asks:
            return self._answer([], {})
        ended = any(place.led.error is not None for place in self.places)
        reads, errors = self._read_all()
        if ended or errors or (reads and self._enough(reads)):
            return self._answer(reads, errors)
        return None

    def on_expire(self) -> Response:
        self.ctx.services.share.meters.expired += 1
        if self.session.closed:
            return self._answer([], {})
        return self._answer(*self._read_all())

    def _answer(self, reads: Sequence[Read], errors: dict[TopicIdPartition, ErrorCode]) -> Response:
        """Acquires records of what was read."""
        failed = self._refused | errors
        for place in self.places:
            if place.led.error is not None:
                failed[place.key] = place.led.error.code
        found = []
        for key, code in failed.items():
            if code is ErrorCode.OFFSET_OUT_OF_RANGE:
                code = self._move_start(key)
            found.append(SharedPartition(*key, error=int(code)))
        left = self.request.max_records
        for read in reads:
            acquired = self._acquire(read, left)
            left -= sum(a.last - a.first + 1 for a in acquired)
            found.append(_shared(read, acquired))
        return Response(found)

    def _acquire(self, read: Read, most: int) -> list[Acquired]:
        if most <= 0 or not read.batches:
            return []
        request = self.request
        mode = request.share_acquire_mode if self.ctx.version >= WITH_RENEWALS else 0
        wanted = Wanted(
            request.member_id,
            most,
            request.batch_size,
            mode == RECORD_LIMIT,
            monotonic_ms() + self._settings.lock_ms,
        )
        return read.place.led.acquire(Fetched(read.offset, read.batches), wanted)

    def _move_start(self, key: TopicIdPartition) -> ErrorCode:
        """The log starts later by now: the next fetch goes on there."""
        place = next(place for place in self.places if place.key == key)
        try:
            place.led.log_starts_at(place.led.partition.leader_log().log_start_offset)
        except ApiError as e:
            return e.code
        return ErrorCode.NONE


def _shared(read: Read, acquired: Sequence[Acquired]) -> SharedPartition:
    shared = SharedPartition(*read.place.key, acquired=acquired)
    if acquired:
        position, size = spanned(read.headers, acquired[0].first, acquired[-1].last)
        shared.records, shared.size = FileSlice(read.piece.file, position, size), size
    return shared


def _response(
    ctx: Context,
    request: Any,
    session: ShareSession,
    found: list[SharedPartition],
    acks: Acknowledgements,
) -> Response:
    share, epoch = ctx.services.share, request.share_session_epoch
    if epoch != INITIAL_EPOCH:
        found = [
            p
            for p in found
            if session.is_news(TopicIdPartition(p.topic_id, p.index), p.size, p.error)
        ]
    known = {TopicIdPartition(p.topic_id, p.index): p for p in found}
    for key, error in acks.results.items():
        shared = known.get(key)
        if shared is None:
            shared = SharedPartition(*key)
            found.append(shared)
        if error is not None:
            shared.ack_error, shared.ack_message = int(error.code), error.detail
    for p in found:
        p.leader = leader_of(ctx, TopicIdPartition(p.topic_id, p.index), p.error or p.ack_error)
    if epoch == FINAL_EPOCH:
        share.close(session)
    names = error_names(code for p in found for code in (p.error, p.ack_error))
    throttle_ms = _count(ctx, found)
    parts = share_fetch_parts(
        found,
        share.settings(request.group_id).lock_ms,
        endpoints(ctx, (p.leader for p in found)),
        throttle_ms,
    )
    return Response(parts=parts, error_names=names, throttle_ms=throttle_ms)


def _count(ctx: Context, found: Sequence[SharedPartition]) -> int:
    """Counts the bytes; returns how long the client must rest for its consumer_byte_rate."""
    services = ctx.services
    for p in found:
        topic = services.metadata.topic_of(p.topic_id)
        if topic is not None and (p.size or p.error):
            stats = services.replicas.topic_stats[topic]
            stats.bytes_out += p.size
            stats.failed_share_fetch += bool(p.error)
    size = sum(p.size for p in found)
    if not services.quotas.active or not size:
        return 0
    now_ms, user, client = monotonic_ms(), user_of(ctx.principal), ctx.client_id or ""
    throttle_ms = services.quotas.fetch.record(user, client, size, now_ms)
    if throttle_ms:
        services.quotas.fetch.throttled(user, client, throttle_ms, now_ms)
    return throttle_ms


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    return Response(ShareFetchResponse(error_code=int(code)), error_names=(code.name,))
