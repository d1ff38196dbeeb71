"""What the requests of one copy tell: an `Observer` of its doors.

    OffsetCommit, TxnOffsetCommit  group and partitions that it commits, and how often
    EndTxn                         whether it ends transactions
    JoinGroup                      its member id and its session
    Produce                        how long it waits for an answer; what was acknowledged to it
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
_TRANSACTIONAL: Final = (ADD_OFFSETS_TO_TXN, END_TXN, TXN_OFFSET_COMMIT)
_FENCED: Final = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
_COMMITS: Final = (OFFSET_COMMIT, TXN_OFFSET_COMMIT)
_READ: Final = (JOIN_GROUP, INIT_PRODUCER_ID, *_COMMITS)
_PRODUCER: Final = 43
"""Where a batch has its producer id: below 0 it has none."""
GAPS: Final = 20
"""Commits over which the usual time between two is taken."""
SHARE: Final = 0.6
"""Of a client's own time-out, how much a message may be held."""
SHORTEST_S, LONGEST_S = 1.2, 10.0


@dataclass(slots=True)
class IdUse:
    """Which copy began with each transactional id last, and how often one was fenced by another."""

    fences: int = 0
    _last: dict[str, str] = field(default_factory=dict)

    def begins(self, copy: str, id_: str) -> None:
        self._last[id_] = copy

    def fenced(self, copy: str, ids: Iterable[str]) -> None:
        self.fences += any(self._last.get(id_, copy) != copy for id_ in ids)


@dataclass(slots=True)
class CopyWire:
    """One copy; over all its lives."""

    topic: str
    """The input."""
    output: str
    owns: Callable[[int], None] = lambda partition: None
    """Is told of each partition of the input that it commits."""
    begins: Callable[[str], None] = lambda id_: None
    """Is told of each transactional id when a producer begins with it."""
    fenced: Callable[[], None] = lambda: None
    """Is told of each answer that a producer has been fenced."""
    groups: set[str] = field(default_factory=set)
    member_id: str = ""
    joined: float = 0.0
    """When it last became a member of a generation, by trio's clock."""
    session_ms: int = 45_000
    produce_ms: int = 30_000
    transactional_ids: set[str] = field(default_factory=set)
    transactions: int = 0
    commits_beside: int = 0
    """Commits of the input that no transaction holds."""
    acks: set[int] = field(default_factory=set)
    """Of its Produce requests for the output."""
    idempotent: set[bool] = field(default_factory=set)
    """Of the producers of the output."""
    sent: Counter[tuple[str, int]] = field(default_factory=Counter)
    """Broker and partition of the output, the first one of a request -> Produce requests."""
    last_place: tuple[str, int] = ("", -1)
    """Where it wrote to last."""
    produced: int = 0
    """Produce requests for the output."""
    acknowledged: Counter[int] = field(default_factory=Counter)
    """Partition of the output -> answers without an error."""
    alone: int = 0
    """Those of acks=1, which a leader gives alone."""
    committed: deque[float] = field(default_factory=lambda: deque(maxlen=GAPS))
    """When it asked for its last commits, by trio's clock."""
    _owners: dict[int, str] = field(default_factory=dict)
    _acks: dict[int, deque[int]] = field(default_factory=dict)
    """Connection -> acks of its Produce requests without their answers."""
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
                if head.acks:  # else there is no answer
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
        if api_key not in (PRODUCE, METADATA, JOIN_GROUP, *_TRANSACTIONAL) or not whole:
            return
        answer = _decoded(decode_response, api_key, version, body)
        if answer is None:
            return
        if api_key == METADATA:
            self._names.update({getattr(t, "topic_id", None): t.name for t in answer.topics})
            return
        if api_key == JOIN_GROUP:
            self.member_id = answer.member_id or self.member_id
            if not answer.error_code:
                self.joined = trio.current_time()
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
        """The topic's name; requests and answers of late versions have its id alone."""
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
        """How long a message of its may be held: until a commit is due, and not until one of its
        time-outs.  `commits`: heartbeats are behind what is held."""
        limit_s = SHARE * (self.session_ms if commits else self.produce_ms) / 1000
        due_s = 1.5 * (self.interval_s or 0.0)
        return min(max(due_s, SHORTEST_S), limit_s, LONGEST_S)


def _decoded(decode: Callable[..., Any], key: int, version: int, body: memoryview) -> Any:
    try:
        return decode(key, version, body)
    except (BadMessage, UnknownApi):
        return None
