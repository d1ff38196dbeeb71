"""The handler pool: takes requests from the channel, calls their API, turns replies into answers.

num.io.threads handlers are tasks of one thread, so a handler that does not wait runs alone anyway.
The number limits how many requests may wait at once for something outside (ZooKeeper, a worker
thread), before the plane's other requests must wait for them.  A handler yields after a
millisecond, so that the other plane and the sockets get their turn.

Everything that is done once for every request is done here: versions, errors, times.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import trio

from highwater.base.event_loop import monotonic_ms
from highwater.base.loop_steps import NOTED_NS
from highwater.base.waker import Waker
from highwater.broker.context import Api, Context, Delayed, Feeding, Handler, Plane, Reply
from highwater.broker.network.connection import api_versions_error
from highwater.broker.network.request import Request
from highwater.broker.network.request_channel import RequestChannel
from highwater.broker.network.request_log import RequestLog
from highwater.broker.quota.quota_manager import user_of
from highwater.broker.quota.throttling import throttled
from highwater.broker.request.request_metrics import ApiMetrics, Metrics
from highwater.broker.request.response import NoResponse, Part, Response
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.wire.codec import BadMessage, UnknownApi, decode_request, response_class
from highwater.kafka.wire.fetch import REPLICA_STATE, STEADY_VERSION
from highwater.kafka.wire.header import API_VERSIONS, api_name

if TYPE_CHECKING:
    from highwater.broker.replica.feed import Feed
    from highwater.broker.services import Services

log = logging.getLogger(__name__)

_SLICE_NS = 1_000_000
_FEW_WRITES = 2
"""Up to so many waiting writes are completed at once; more gather for a pass of the loop."""
_PRODUCE, _FETCH = 0, 1
_CONSUMER, _FOLLOWER = -1, -2
_FETCH_NAMES = {_CONSUMER: "FetchConsumer", _FOLLOWER: "FetchFollower"}
_EXEMPT = frozenset((4, 5, 6, 7, 27, 56))
"""Requests between brokers are not throttled: LeaderAndIsr and its kin, WriteTxnMarkers ..."""
_REPLIES = (Response, Delayed, NoResponse, Feeding)

ErrorResponse = Callable[[Context, Any, ErrorCode], Reply]


class HandlerEntry(NamedTuple):
    """One API as the pool calls it.  `error_response` turns an error into an answer; `refused`
    makes the answer for the items of a request that its client may not have."""

    api: Api
    handle: Handler
    error_response: ErrorResponse | None = None
    refused: ErrorResponse | None = None


HandlerTable = Mapping[int, HandlerEntry]


def handler_table(modules: Iterable[Any]) -> HandlerTable:
    """The table of handler modules: each has `API`, `handle` and perhaps `error_response`."""
    table: dict[int, HandlerEntry] = {}
    for module in modules:
        api: Api = module.API
        if api.key in table:
            raise ValueError(f"two handlers for API {api.key} ({api.name})")
        error_response = getattr(module, "error_response", None)
        refused = getattr(module, "refused", error_response)
        if api.access.each is not None and refused is None:
            raise ValueError(f"{api.name} has no answer for the items that are refused")
        table[api.key] = HandlerEntry(api, module.handle, error_response, refused)
    return table


class HandlerPool:
    """The handlers of one plane."""

    def __init__(
        self,
        plane: Plane,
        channel: RequestChannel,
        handlers: HandlerTable,
        services: Services,
        metrics: Metrics,
        perf_ns: Callable[[], int],
        request_log: RequestLog,
    ) -> None:
        self.plane = plane
        self.busy_ns = 0
        """The time in which a handler ran; with one thread, never more than has passed."""
        self._channel = channel
        self._handlers = handlers
        self._services = services
        self._metrics = metrics
        self._request_log = request_log
        self._perf_ns = perf_ns
        self._nursery: trio.Nursery | None = None
        self._size = 0
        self._waiting: deque[Awaitable[None]] = deque()
        """What `work` has begun, for the handlers that were woken to wait for it."""
        channel.work = self.work
        self.start: Callable[[Request], Awaitable[None] | None] = self.handle
        """`handle`, or a wrapper of it that observes (see `tracing`)."""
        self._labels: dict[int, tuple[ApiMetrics, ...]] = {}

    async def run(self, size: Callable[[], int]) -> None:
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            self.resize(size())
            await trio.sleep_forever()

    def resize(self, size: int) -> None:
        """Applies num.io.threads: new handlers start, superfluous ones end when idle."""
        if self._nursery is None:
            return  # `run` asks for the size
        before, self._size = self._size, size
        for index in range(before, size):
            self._nursery.start_soon(self._handler, index)
        if size < before:
            self._channel.wake_all()

    def work(self) -> None:
        """Does an idle handler's work on a processor's task, for a millisecond.

        Operations that the requests completed are then looked at here: otherwise a write would wait
        for a pass of the loop on its way to the followers, and for another when they have it.  If
        many writes wait, or the millisecond is over, that pass pays: a fetch then takes more.
        """
        channel, perf_ns = self._channel, self._perf_ns
        completions = self._services.completions
        started = now = perf_ns()
        channel.started()
        completions.collect()
        while now - started < _SLICE_NS:
            request = channel.take()
            if request is None:
                break
            request.taken = now
            waiting = self.start(request)
            if waiting is not None:
                self._waiting.append(waiting)
                channel.wake_one()
                if not channel.handler_free:
                    break
            now = perf_ns()
            if now - request.taken > NOTED_NS:
                self._note(request, now - request.taken)
        few = self._services.purgatories.pending("Produce") <= _FEW_WRITES
        completions.settle(at_once=few and now - started < _SLICE_NS)
        now = perf_ns()
        channel.blocked()
        self.busy_ns += now - started

    async def _handler(self, index: int) -> None:
        channel, perf_ns = self._channel, self._perf_ns
        waker = Waker()
        task = trio.lowlevel.current_task()
        name = task.name
        channel.started()
        started = perf_ns()
        try:
            while index < self._size:
                waiting = self._waiting.popleft() if self._waiting else None
                if waiting is None:
                    request = channel.take()
                    if request is None:
                        self.busy_ns += perf_ns() - started
                        await channel.sleep(waker)
                        task.name = name
                        started = perf_ns()
                        continue
                    request.taken = now = perf_ns()
                    if now - started > _SLICE_NS:
                        self.busy_ns += now - started
                        await trio.lowlevel.checkpoint()
                        task.name = name
                        request.taken = started = perf_ns()
                    waiting = self.start(request)
                    if request.handled - request.taken > NOTED_NS:
                        self._note(request, request.handled - request.taken)
                if waiting is not None:
                    self.busy_ns += perf_ns() - started
                    channel.blocked()
                    try:
                        await waiting
                    finally:
                        channel.started()
                    started = perf_ns()
        finally:
            channel.blocked()

    def _note(self, request: Request, ns: int) -> None:
        self._metrics.steps.note(f"handler {api_name(request.api_key)}", ns)

    def handle(self, request: Request) -> Awaitable[None] | None:
        """Handles a request up to its first wait, and returns the rest to be awaited."""
        entry = self._handlers.get(request.api_key)
        version = request.api_version
        if entry is None or not entry.api.versions[0] <= version <= entry.api.versions[1]:
            self._unsupported(request, entry)
            return None
        connection = request.connection
        if request.api_key == _FETCH and (feed := self._steady(request)) is not None:
            return self._feed(request, feed)
        ctx = Context(
            entry.api,
            version,
            request.client_id,
            connection.principal,
            connection,
            monotonic_ms(),
            self._services,
        )
        request.metrics = self._labels_of(request)
        if self._request_log.enabled:
            self._request_log.taken(request)
        message: Any = None
        try:
            body = request.body
            assert body is not None
            if entry.api.raw:
                message = body
            else:
                message = decode_request(request.api_key, version, body)
                self._channel.release(request)
                if request.api_key == API_VERSIONS and version >= 3:
                    connection.software = (
                        message.client_software_name,
                        message.client_software_version,
                    )
            if self._services.authorizer is None:
                reply = entry.handle(ctx, message)
            else:
                message, whole = self._admit(entry, ctx, request, message)
                reply = whole or entry.handle(ctx, message)
            if isinstance(reply, _REPLIES):
                return self._reply(entry, ctx, request, message, reply)
            else:
                return self._finish_later(entry, ctx, request, message, reply)
        except Exception as exc:
            self._failed(entry, ctx, request, message, exc)
        return None

    def _steady(self, request: Request) -> Feed | None:
        """The feed that has taken a follower's fetch, if only the fetch's offsets are new."""
        body = request.body
        assert body is not None
        if (
            request.api_version != STEADY_VERSION
            or body[0] & 0x80  # the replica id: negative for consumers
            or self._services.authorizer is not None
            or self._request_log.enabled
        ):
            return None
        return self._services.replicas.sessions.steady(body, monotonic_ms())

    def _feed(self, request: Request, feed: Feed) -> Awaitable[None] | None:
        if not request.metrics:
            request.metrics = self._labels_for(_FOLLOWER)
        request.handled = self._perf_ns()
        self._channel.release(request)
        try:
            waiting = feed.serve(request, self, self._services.completions)
        except Exception as exc:
            self.feed_failed(request, exc)
            return None
        return None if waiting is None else self._feed_later(request, waiting)

    async def _feed_later(self, request: Request, waiting: Awaitable[None]) -> None:
        try:
            await waiting
        except Exception as exc:
            self.feed_failed(request, exc)

    def fed(self, request: Request, parts: Sequence[Part], errors: tuple[str, ...]) -> None:
        """Does what `feed.Desk.fed` says."""
        if self._services.quotas.active:
            self._services.quotas.exempt(request.handled - request.taken)
        request.set_body(parts)
        request.error_names = errors
        if request.logged is not None:
            self._request_log.answered(request, Response(parts=parts, error_names=errors))
        self._done(request)

    def feed_failed(self, request: Request, error: Exception) -> None:
        """Closes the connection (`feed.Desk`): the follower opens another, with a new session."""
        log.error("closing connection: no answer could be made to %s", request, exc_info=error)
        self._close(request)

    def _admit(
        self, entry: HandlerEntry, ctx: Context, request: Request, message: Any
    ) -> tuple[Any, Response | None]:
        """The part of a request that its client may have, and an answer if it may have none of it;
        raises ApiError."""
        access = entry.api.access
        allowed, refused = access.split(ctx, message)
        if not refused:
            return message, None
        assert entry.refused is not None
        answers: Any = [entry.refused(ctx, part, code) for code, part in refused]
        if allowed is None:
            return message, access.merged(answers)
        request.merge = lambda response: access.merged([response, *answers])
        return allowed, None

    async def _finish_later(
        self,
        entry: HandlerEntry,
        ctx: Context,
        request: Request,
        message: Any,
        waiting: Awaitable[Reply],
    ) -> None:
        # its steps carry the name of the request until the handler is idle
        trio.lowlevel.current_task().name = f"handler {entry.api.name}"
        try:
            later = self._reply(entry, ctx, request, message, await waiting)
            if later is not None:
                await later
        except Exception as exc:
            self._failed(entry, ctx, request, message, exc)

    def _reply(
        self, entry: HandlerEntry, ctx: Context, request: Request, message: Any, reply: Reply
    ) -> Awaitable[None] | None:
        if isinstance(reply, Response):
            self._respond(request, reply)
        elif isinstance(reply, Delayed):
            request.handled = self._perf_ns()
            self._channel.release(request)
            kept = None if entry.api.raw else message  # a raw one is the request's whole buffer
            self._services.purgatories.submit(
                reply.operation,
                lambda response: self._respond_or_close(request, response),
                lambda exc: self._failed(entry, ctx, request, kept, exc),
            )
            if reply.operation.overlaps and not request.answered:
                request.overlaps = True
                request.connection.processor.overlap(request.connection)
        elif isinstance(reply, Feeding):
            return self._feed(request, reply.feed)
        elif isinstance(reply, NoResponse):
            request.then_close = reply.close
            if self._services.quotas.active:
                request.handled = self._perf_ns()
                request.throttle_ms = self._throttled(request, Response()).throttle_ms
            self._done(request)
        else:
            raise TypeError(f"{entry.api.name} gave {reply!r}, which is no reply")
        return None

    def _respond(self, request: Request, response: Response) -> None:
        if request.answered:
            log.error("a second answer to %s was thrown away", request)
            return
        if not request.handled:
            request.handled = self._perf_ns()
        if request.merge is not None:
            response, request.merge = request.merge(response), None
        if self._services.quotas.active:
            response = self._throttled(request, response)
        request.set_response(response)
        if request.logged is not None:
            self._request_log.answered(request, response)
        self._done(request)

    def _throttled(self, request: Request, response: Response) -> Response:
        """Adds to an answer how long the client is muted, if it has used more than its quota."""
        quotas, key = self._services.quotas, request.api_key
        ns = request.handled - request.taken
        follower = key == _FETCH and request.metrics is self._labels.get(_FOLLOWER)
        if follower or key in _EXEMPT or self.plane is Plane.CONTROL:
            quotas.exempt(ns)
            return response
        now_ms = monotonic_ms()
        user, client = user_of(request.connection.principal), request.client_id or ""
        for_bytes = 0
        if key == _PRODUCE:
            for_bytes = quotas.produce.record(user, client, request.size, now_ms)
        no_answer = response.message is None and response.parts is None  # acks=0: bytes alone count
        for_time = 0 if no_answer else quotas.request_time(user, client, ns, now_ms)
        throttle_ms = max(for_bytes, for_time)
        if throttle_ms <= response.throttle_ms:
            return response
        which = quotas.produce if for_bytes >= for_time else quotas.request
        which.throttled(user, client, throttle_ms, now_ms)
        if no_answer:
            return Response(throttle_ms=throttle_ms)
        return throttled(response, key, request.api_version, throttle_ms)

    def _respond_or_close(self, request: Request, response: Response) -> None:
        try:
            self._respond(request, response)
        except Exception:
            log.exception("closing connection: no answer could be made to %s", request)
            self._close(request)

    def _done(self, request: Request) -> None:
        request.answered = True
        request.ready = now = self._perf_ns()
        if not request.handled:
            request.handled = now
        if request.body is not None:
            self._channel.release(request)
        request.connection.processor.respond(request)

    def _close(self, request: Request) -> None:
        request.answered = True
        self._channel.release(request)
        request.connection.processor.close(request.connection)

    def _failed(
        self, entry: HandlerEntry, ctx: Context, request: Request, message: Any, exc: Exception
    ) -> None:
        """Turns a handler's exception into an answer with its code, or ends the connection."""
        if isinstance(exc, BadMessage | UnknownApi):
            log.warning("closing connection %s: %s", request.connection.id, exc)
            self._close(request)
            return
        if isinstance(exc, ApiError):
            code = exc.code
        else:
            code = ErrorCode.UNKNOWN_SERVER_ERROR
            log.error("handling %s failed", request, exc_info=exc)
        if request.answered:
            return
        try:
            reply = self._error_reply(entry, ctx, message, code)
            if isinstance(reply, Response):
                if not reply.error_names:
                    request.error_names = (code.name,)
                self._respond(request, reply)
                request.error_names = reply.error_names or (code.name,)
                return
            if isinstance(reply, NoResponse):
                request.then_close = reply.close
                self._done(request)
                return
        except Exception:
            log.exception("no error answer could be made to %s", request)
        log.warning("closing connection %s: no answer to %s", request.connection.id, request)
        self._close(request)

    def _error_reply(
        self, entry: HandlerEntry, ctx: Context, message: Any, code: ErrorCode
    ) -> Reply | None:
        if entry.error_response is not None:
            return entry.error_response(ctx, message, code)
        cls = response_class(entry.api.key)
        field = cls.fields.get("error_code")
        if field is None or not field.for_version_q(ctx.version):
            return None
        return Response(message=cls(error_code=int(code)), error_names=(code.name,))

    def _unsupported(self, request: Request, entry: HandlerEntry | None) -> None:
        """Answers ApiVersions with its range; for other APIs there is no answer, only a close."""
        if entry is not None and request.api_key == API_VERSIONS:
            request.handled = self._perf_ns()
            request.set_body([api_versions_error(35, entry.api.versions)])
            request.error_names = (ErrorCode.UNSUPPORTED_VERSION.name,)
            self._done(request)
            return
        name, version = api_name(request.api_key), request.api_version
        offered = f"{entry.api.versions[0]} to {entry.api.versions[1]}" if entry else "none"
        log.warning(
            "closing connection %s: %s v%d is not supported (offered: %s)",
            request.connection.id,
            name,
            version,
            offered,
        )
        self._close(request)

    def _labels_of(self, request: Request) -> tuple[ApiMetrics, ...]:
        key = request.api_key
        if key == _FETCH and request.body is not None and len(request.body) >= 4:
            # the replica's id is negative for consumers; where it comes last, followers are refused
            follows = request.api_version < REPLICA_STATE and not request.body[0] & 0x80
            key = _FOLLOWER if follows else _CONSUMER
        return self._labels_for(key)

    def _labels_for(self, key: int) -> tuple[ApiMetrics, ...]:
        found = self._labels.get(key)
        if found is None:
            name = _FETCH_NAMES.get(key) or api_name(key)
            found = self._labels[key] = (self._metrics.api(name),)
        return found
