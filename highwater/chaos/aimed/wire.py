"""What the requests of one copy show: an `Observer` of its doors.

    OffsetCommit, TxnOffsetCommit  the group and partitions in which it commits, and how often
    EndTxn                         whether it ends transactions
    JoinGroup                      its member id and its session
    ConsumerGroupHeartbeat         its group and member id, where it has the consumer protocol
    Produce                        how long it waits for an answer; which writes were acknowledged
    InitProducerId                 its transactional ids
    answers to a transaction's     whether another producer has fenced it

It says when to strike and how long to hold, and never accuses.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Any, Final

import trio

from highwater.kafka.errors import ErrorCode
from highwater.kafka.wire.codec import (
    BadMessage,
    UnknownApi,
    decode_request,
    decode_response,
)
from highwater.kafka.wire.header import RequestHeader
from highwater.kafka.wire.produce_head import read_head

PRODUCE, METADATA, OFFSET_COMMIT, JOIN_GROUP = 0, 3, 8, 11
INIT_PRODUCER_ID, ADD_OFFSETS_TO_TXN, END_TXN, TXN_OFFSET_COMMIT = 22, 25, 26, 28
CONSUMER_GROUP_HEARTBEAT = 68
_TRANSACTIONAL: Final = (ADD_OFFSETS_TO_TXN, END_TXN, TXN_OFFSET_COMMIT)
_FENCED: Final = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
_COMMITS: Final = (OFFSET_COMMIT, TXN_OFFSET_COMMIT)
_READ: Final = (JOIN_GROUP, CONSUMER_GROUP_HEARTBEAT, INIT_PRODUCER_ID, *_COMMITS)
_ANSWERS: Final = (PRODUCE, METADATA, JOIN_GROUP, CONSUMER_GROUP_HEARTBEAT, *_TRANSACTIONAL)
_PRODUCER: Final = 43
"""The position of the producer id in a batch; a negative id means that there is none."""
GAPS: Final = 20
"""How many of the last commits count for the usual time between two."""
SHARE: Final = 0.6
"""The share of a client's own time-out for which a message may be held."""
SHORTEST_S, LONGEST_S = 1.2, 10.0


@dataclass(slots=True)
class IdUse:
    """Which copy initialized each transactional id last, and how often a copy fenced another."""

    fences: int = 0
    _last: dict[str, str] = field(default_factory=dict)

    def begins(self, copy: str, id_: str) -> None:
        self._last[id_] = copy

    def fenced(self, copy: str, ids: Iterable[str]) -> None:
        self.fences += any(self._last.get(id_, copy) != copy for id_ in ids)


@dataclass(slots=True)
class CopyWire:
    """One copy's traffic, over all its lives."""

    topic: str
    """The application's input."""
    output: str
    owns: Callable[[int], None] = lambda partition: None
    """Is called with each partition of the input in which the copy commits."""
    begins: Callable[[str], None] = lambda id_: None
    """Is called with a transactional id whenever a producer initializes it."""
    fenced: Callable[[], None] = lambda: None
    """Is called for each answer which says that a producer has been fenced."""
    groups: set[str] = field(default_factory=set)
    member_id: str = ""
    joined: float = 0.0
    """When it last became a member of a generation, or came to a member epoch, by trio's clock."""
    member_epoch: int = 0
    """The latest one, with the consumer protocol."""
    session_ms: int = 45_000
    produce_ms: int = 30_000
    transactional_ids: set[str] = field(default_factory=set)
    transactions: int = 0
    commits_beside: int = 0
    """Commits in the input that are in no transaction."""
    acks: set[int] = field(default_factory=set)
    """The values of acks in its Produce requests for the output."""
    idempotent: set[bool] = field(default_factory=set)
    """Whether producers of the output were idempotent: True, False, or both."""
    sent: Counter[tuple[str, int]] = field(default_factory=Counter)
    """(broker, first partition in the request) -> the number of such Produce requests."""
    last_place: tuple[str, int] = ("", -1)
    """The key in `sent` of its last Produce request for the output."""
    produced: int = 0
    """The number of its Produce requests for the output."""
    acknowledged: Counter[int] = field(default_factory=Counter)
    """Partition of the output -> the number of answers without an error."""
    alone: int = 0
    """The number of those answers that were given with acks=1, by the leader alone."""
    committed: deque[float] = field(default_factory=lambda: deque(maxlen=GAPS))
    """When it sent its last commits, by trio's clock."""
    _owners: dict[int, str] = field(default_factory=dict)
    _acks: dict[int, deque[int]] = field(default_factory=dict)
    """Connection -> acks of its Produce requests that are not answered yet."""
    _names: dict[Any, str | None] = field(default_factory=dict)
    """Topic ids -> names, from answers to Metadata."""

    # --- Observer

    def begun(self, connection: int, owner: str, first: bytes) -> None:
        self._owners[connection] = owner

    def unreachable(self, connection: int, owner: str, why: str) -> None: ...

    def hung_up(self, connection: int) -> None: ...

    def ended(self, connection: int) -> None:
        self._acks.pop(connection, None)
        self._owners.pop(connection, None)

    def asked(
        self, connection: int, header: RequestHeader, body: memoryview, *, whole: bool
    ) -> None:
        key = header.api_key
        if key == PRODUCE:
            head = read_head(header.api_version, body)
            if head is not None:
                self.produce_ms = head.timeout_ms
                if head.topic in (None, self.output):
                    self.produced += 1
                    self.acks.add(head.acks)
                    self.last_place = self._owners.get(connection, ""), head.partition
                    self.sent[self.last_place] += 1
                    if head.batch is not None and len(body) >= head.batch + _PRODUCER + 8:
                        self.idempotent.add(body[head.batch + _PRODUCER] < 0x80)
                if head.acks:  # acks=0 gets no answer
                    self._acks.setdefault(connection, deque()).append(head.acks)
        elif key == END_TXN:
            self.transactions += 1
        elif key in _READ and whole:
            request = _decoded(decode_request, key, header.api_version, body)
            if request is not None:
                self._read(key, request)

    def answered(
        self, connection: int, api_key: int, version: int, body: memoryview, *, whole: bool
    ) -> None:
        asked = self._acks.get(connection) if api_key == PRODUCE else None
        acks = asked.popleft() if asked else -1
        if api_key not in _ANSWERS or not whole:
            return
        answer = _decoded(decode_response, api_key, version, body)
        if answer is None:
            return
        if api_key == METADATA:
            self._names.update({getattr(t, "topic_id", None): t.name for t in answer.topics})
            return
        if api_key in (JOIN_GROUP, CONSUMER_GROUP_HEARTBEAT):
            self.member_id = answer.member_id or self.member_id
            epoch = getattr(answer, "member_epoch", self.member_epoch)
            if not answer.error_code and (api_key == JOIN_GROUP or epoch != self.member_epoch):
                self.joined = trio.current_time()
            self.member_epoch = epoch
            return
        if api_key in _TRANSACTIONAL:
            places = [p for topic in getattr(answer, "topics", ()) for p in topic.partitions]
            if any(getattr(one, "error_code", 0) in _FENCED for one in (answer, *places)):
                self.fenced()
            return
        for topic in answer.responses:
            for partition in topic.partition_responses:
                if partition.error_code in _FENCED:
                    self.fenced()
                if self._name(topic) == self.output and not partition.error_code:
                    self.acknowledged[partition.index] += 1
                    self.alone += acks == 1

    def _read(self, key: int, request: Any) -> None:
        if key == JOIN_GROUP:
            self.groups.add(request.group_id)
            self.session_ms = request.session_timeout_ms
        elif key == CONSUMER_GROUP_HEARTBEAT:
            self.groups.add(request.group_id)
            self.member_id = request.member_id or self.member_id
        elif key == INIT_PRODUCER_ID:
            if request.transactional_id:
                self.transactional_ids.add(request.transactional_id)
                self.begins(request.transactional_id)
        else:
            self.groups.add(request.group_id)
            for topic in request.topics:
                if self._name(topic) == self.topic and topic.partitions:
                    self.commits_beside += key == OFFSET_COMMIT
                    self.committed.append(trio.current_time())
                    for partition in topic.partitions:
                        self.owns(partition.partition_index)

    def _name(self, topic: Any) -> str | None:
        """The topic's name; requests and answers of late versions have only its id."""
        name: str | None = getattr(topic, "name", None)
        return name or self._names.get(getattr(topic, "topic_id", None))

    # --- what is made of it

    @property
    def interval_s(self) -> float | None:
        """The usual time between two commits; None where there were fewer than two."""
        times = list(self.committed)
        gaps = [after - before for before, after in pairwise(times)]
        return median(gaps) if gaps else None

    def hold_s(self, *, commits: bool) -> float:
        """How long a message of this copy may be held: until a commit is due, but not until one of
        its time-outs.  `commits`: whether commits are held, and so the heartbeats behind them."""
        limit_s = SHARE * (self.session_ms if commits else self.produce_ms) / 1000
        due_s = 1.5 * (self.interval_s or 0.0)
        return min(max(due_s, SHORTEST_S), limit_s, LONGEST_S)


def _decoded(decode: Callable[..., Any], key: int, version: int, body: memoryview) -> Any:
    try:
        return decode(key, version, body)
    except (BadMessage, UnknownApi):
        return None
