"""The persister of one broker: it asks whichever broker is the share coordinator.

The share coordinator of a share-partition leads the partition of __share_group_state to which its
key belongs.  Where that is this broker, its own coordinator is called; otherwise the call goes into
a request to the other broker.  Calls of one kind for one group that come while such a request is
under way share the next one.

A call is tried again while there is no coordinator, or it does not answer, until request.timeout.ms
has passed; then its last error is the answer.  An attempt ends early when the metadata names
another leader.  To write twice does no harm: a coordinator that meets a write again, even behind
later ones, moves nothing back.

Source: org.apache.kafka.server.share.persister.PersisterStateManager of Apache Kafka 4.2.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

import trio

from highwater.broker.membership.peer_link import Link
from highwater.broker.share.persister import (
    NO_EPOCH,
    SharePartitionKey,
    StateAnswer,
    StateBatch,
)
from highwater.broker.share.state_messages import (
    DELETE,
    INITIALIZE,
    READ,
    SUMMARY,
    WRITE,
    StateCall,
    answers_of,
    request_of,
)
from highwater.kafka.errors import ErrorCode
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.codec import BadMessage, decode_response

if TYPE_CHECKING:
    from highwater.broker.metadata.metadata_cache import MetadataCache
    from highwater.kafka.client.connection import Pending
    from highwater.kafka.config import Config
    from highwater.world.api import World

log = logging.getLogger(__name__)

AGAIN: Final = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NETWORK_EXCEPTION,
)
"""The errors that pass when another broker coordinates."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 1.0
LOOK_S = 0.5
"""How often an attempt looks whether its broker still leads."""
AT_ONCE = 500
_NOWHERE = StateAnswer(ErrorCode.COORDINATOR_NOT_AVAILABLE)
_LOST = StateAnswer(ErrorCode.NETWORK_EXCEPTION)
_TOO_LATE = StateAnswer(ErrorCode.REQUEST_TIMED_OUT)


class LocalStates(Protocol):
    """This broker's own share coordinator."""

    def partition_of(self, name: str) -> TopicPartition: ...

    def carry_out(self, call: StateCall, done: Callable[[StateAnswer], None]) -> None:
        """Calls `done` once, perhaps at once."""


@dataclass(slots=True, eq=False)
class _Attempt:
    call: StateCall
    tp: TopicPartition
    answer: StateAnswer | None = None
    over: trio.Event = field(default_factory=trio.Event)

    def done(self, answer: StateAnswer) -> None:
        if self.answer is None:
            self.answer = answer
            self.over.set()


class StateLinks:
    """A `Persister`; `run` must run while it is asked for other brokers' state."""

    def __init__(
        self,
        config: Config,
        world: World,
        metadata: MetadataCache,
        coordinator: LocalStates,
        create_topic: Callable[[], Awaitable[object]],
    ) -> None:
        """`create_topic` is called where __share_group_state does not exist."""
        self._config = config
        self._world = world
        self._metadata = metadata
        self._coordinator = coordinator
        self._create_topic = create_topic
        self._brokers: dict[int, _Broker] = {}
        self._writers: dict[SharePartitionKey, trio.StrictFIFOLock] = {}
        self._nursery: trio.Nursery | None = None

    # ---------------------------------------------------------------- Persister

    async def initialize(
        self, key: SharePartitionKey, state_epoch: int, start_offset: int
    ) -> StateAnswer:
        return await self._ask(StateCall(INITIALIZE, key, state_epoch, start_offset=start_offset))

    async def read(self, key: SharePartitionKey, leader_epoch: int) -> StateAnswer:
        return await self._ask(StateCall(READ, key, leader_epoch=leader_epoch))

    async def write(
        self,
        key: SharePartitionKey,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        delivery_complete_count: int,
        batches: Sequence[StateBatch],
    ) -> StateAnswer:
        call = StateCall(
            WRITE,
            key,
            state_epoch,
            leader_epoch,
            start_offset,
            delivery_complete_count,
            tuple(batches),
        )
        turn = self._writers.setdefault(key, trio.StrictFIFOLock())
        try:
            async with turn:
                return await self._ask(call)
        finally:
            if not turn.statistics().tasks_waiting and not turn.locked():
                self._writers.pop(key, None)

    async def delete(self, key: SharePartitionKey) -> StateAnswer:
        return await self._ask(StateCall(DELETE, key))

    async def summary(self, key: SharePartitionKey) -> StateAnswer:
        return await self._ask(StateCall(SUMMARY, key, leader_epoch=NO_EPOCH))

    # ---------------------------------------------------------------- inside

    async def _ask(self, call: StateCall) -> StateAnswer:
        deadline = trio.current_time() + self._config.request_timeout_ms / 1000
        pause_s = FIRST_PAUSE_S
        while True:
            answer = _TOO_LATE
            with trio.move_on_at(deadline):
                answer = await self._try(call)
            if answer.error not in AGAIN or trio.current_time() + pause_s >= deadline:
                return answer
            await trio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    async def _try(self, call: StateCall) -> StateAnswer:
        tp = self._coordinator.partition_of(str(call.key))
        if not self._metadata.has_topic(tp.topic):
            await self._create_topic()
            return _NOWHERE
        leader = self._metadata.leader_of(tp)
        attempt = _Attempt(call, tp)
        if leader == self._config.broker_id:
            self._coordinator.carry_out(call, attempt.done)
        elif leader < 0 or self._nursery is None:
            return _NOWHERE
        else:
            self._broker(leader, self._nursery).add(attempt)
        try:
            await attempt.over.wait()
        finally:
            attempt.done(_TOO_LATE)  # one that still waits is not sent any more
        assert attempt.answer is not None
        return attempt.answer

    def _broker(self, broker_id: int, nursery: trio.Nursery) -> _Broker:
        broker = self._brokers.get(broker_id)
        if broker is None:
            link = Link(
                self._config,
                self._world,
                self._metadata,
                broker_id,
                "share-state",
                timeout_ms=self._config.request_timeout_ms,
            )
            broker = self._brokers[broker_id] = _Broker(link, self._metadata, nursery)
        return broker

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            await trio.sleep_forever()


class _Broker:
    """The calls for one other broker, in a queue for each kind and group."""

    def __init__(self, link: Link, metadata: MetadataCache, nursery: trio.Nursery) -> None:
        self._link = link
        self._metadata = metadata
        self._nursery = nursery
        self._opening = trio.Lock()
        self._queues: dict[tuple[int, str], deque[_Attempt]] = {}

    def add(self, attempt: _Attempt) -> None:
        name = attempt.call.api_key, attempt.call.key.group
        queue = self._queues.get(name)
        if queue is None:
            queue = self._queues[name] = deque()
            self._nursery.start_soon(self._empty, name, queue)
        queue.append(attempt)

    async def _empty(self, name: tuple[int, str], queue: deque[_Attempt]) -> None:
        while queue:
            taken: dict[SharePartitionKey, _Attempt] = {}
            while queue and len(taken) < AT_ONCE and queue[0].call.key not in taken:
                attempt = queue.popleft()
                if attempt.answer is None:
                    taken[attempt.call.key] = attempt
            if not taken:
                continue
            answers: dict[SharePartitionKey, StateAnswer] = {}
            try:
                response = await self._request(list(taken.values()))
                answers = answers_of(*name, response)
            except (OSError, BadMessage) as e:
                log.info("state of share group %s at broker %d: %s", name[1],
                         self._link.broker_id, e)  # fmt: skip
            for key, attempt in taken.items():
                attempt.done(answers.get(key, _LOST))
        del self._queues[name]

    async def _request(self, attempts: Sequence[_Attempt]) -> Any:
        request, version = request_of([attempt.call for attempt in attempts])
        try:
            async with self._opening:
                pending = await self._link.begin(request, version)
            deadline = trio.current_time() + self._link.timeout_s
            while trio.current_time() < deadline and self._leads_one(attempts):
                body = await _look(pending)
                if body is not None:
                    return decode_response(request.API_KEY, version, body)
        except (OSError, BadMessage):
            self._link.close()
            raise
        pending.abandon()
        raise TimeoutError("no answer in time, or another broker leads by now")

    def _leads_one(self, attempts: Sequence[_Attempt]) -> bool:
        leader_of = self._metadata.leader_of
        return any(leader_of(attempt.tp) == self._link.broker_id for attempt in attempts)


async def _look(pending: Pending) -> memoryview | None:
    with trio.move_on_after(LOOK_S):
        return await pending.wait()
    return None
