"""The states of the share-partitions that belong to one partition of __share_group_state.

A call gives an answer and at most one record: an *update* with what a write adds, or a *snapshot*
of the whole state, where it is initialized or enough updates have come since the last one.  Records
are applied when they are appended, so that the next call sees them; loading applies them too.

A write that comes again, even behind later ones, moves nothing back: its batches count as they
would have (`state_batches`), and a start offset below the state's is not taken.  Kafka takes it.

Source: ShareCoordinatorShard, ShareGroupOffset of Apache Kafka 4.2.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import NoReturn

from highwater.broker.coordinator.share.records import Snapshot, StateRecord, Update
from highwater.broker.coordinator.share.state_batches import combined
from highwater.broker.share.persister import (
    NO_COUNT,
    NO_EPOCH,
    NO_OFFSET,
    SharePartitionKey,
    StateAnswer,
)
from highwater.broker.share.state_messages import (
    DELETE,
    INITIALIZE,
    READ,
    SUMMARY,
    WRITE,
    StateCall,
)
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.topic_ids import NO_ID


@dataclass(slots=True)
class _State:
    """One share-partition's; `snapshot` is the state as it is now."""

    snapshot: Snapshot
    offset: int
    """Where the last snapshot stands in the log."""
    leader_epoch: int
    state_epoch: int
    """The highest epochs that were seen, by which others are fenced."""
    updates: int = 0
    """The number of updates since the last snapshot."""


@dataclass(frozen=True, slots=True)
class Step:
    answer: StateAnswer
    record: StateRecord | None = None


class ShareStates:
    def __init__(self, updates_per_snapshot: int) -> None:
        """`updates_per_snapshot`: share.coordinator.snapshot.update.records.per.snapshot."""
        self._updates_per_snapshot = updates_per_snapshot
        self._states: dict[SharePartitionKey, _State] = {}

    def __len__(self) -> int:
        return len(self._states)

    def clear(self) -> None:
        self._states.clear()

    # ---------------------------------------------------------------- calls

    def step(
        self, call: StateCall, now_ms: int, exists: Callable[[SharePartitionKey], bool]
    ) -> Step:
        """What a call does; `exists` says whether there is such a partition, `now_ms` is the wall
        clock."""
        state = self._states.get(call.key)
        try:
            self._check(call, state)
            if not exists(call.key):
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such partition")
        except ApiError as e:
            return Step(StateAnswer(e.code, e.detail))
        if call.api_key == INITIALIZE:
            return Step(StateAnswer(), _initialized(call, state, now_ms))
        if call.api_key == DELETE:
            return Step(StateAnswer(), None if state is None else StateRecord(call.key, None))
        if state is None:  # of a summary
            return Step(StateAnswer())
        if call.api_key == WRITE:
            return Step(StateAnswer(), self._written(call, state, now_ms))
        snapshot = state.snapshot
        answer = StateAnswer(
            state_epoch=snapshot.state_epoch,
            leader_epoch=snapshot.leader_epoch,
            start_offset=snapshot.start_offset,
            delivery_complete_count=snapshot.delivery_complete_count,
            batches=snapshot.batches,
        )
        if call.api_key == SUMMARY or call.leader_epoch in (NO_EPOCH, state.leader_epoch):
            return Step(answer)
        epoch = replace(
            call,
            start_offset=snapshot.start_offset,
            delivery_complete_count=snapshot.delivery_complete_count,
        )
        return Step(answer, self._written(epoch, state, now_ms))

    def _check(self, call: StateCall, state: _State | None) -> None:
        """Raises ApiError for a call that is refused."""
        kind, key = call.api_key, call.key
        if key.topic_id == NO_ID:
            _invalid("the topic id is zero")
        if key.partition < 0:
            _invalid(f"partition {key.partition} is negative")
        if state is None:
            if kind in (READ, WRITE):
                _invalid("the share-partition's state was not initialized")
            return
        fenced = kind == READ or (kind == WRITE and call.leader_epoch != NO_EPOCH)
        if fenced and call.leader_epoch < state.leader_epoch:
            text = f"leader epoch {call.leader_epoch} is below {state.leader_epoch}"
            raise ApiError(ErrorCode.FENCED_LEADER_EPOCH, text)
        fenced = kind in (INITIALIZE, WRITE) and call.state_epoch != NO_EPOCH
        if fenced and call.state_epoch < state.state_epoch:
            text = f"state epoch {call.state_epoch} is below {state.state_epoch}"
            raise ApiError(ErrorCode.FENCED_STATE_EPOCH, text)

    def _written(self, call: StateCall, state: _State, now_ms: int) -> StateRecord:
        """The record of a write, or of a read by a new leader."""
        snapshot = state.snapshot
        leader_epoch = snapshot.leader_epoch
        if call.api_key == READ:
            leader_epoch = call.leader_epoch
        update = Update(
            snapshot.snapshot_epoch,
            leader_epoch,
            call.start_offset,
            call.delivery_complete_count,
            combined(call.batches, call.start_offset),
        )
        if state.updates < self._updates_per_snapshot:
            return StateRecord(call.key, update)
        merged = replace(
            _merged(snapshot, update),
            snapshot_epoch=snapshot.snapshot_epoch + 1,
            created_ms=now_ms,
            written_ms=now_ms,
        )
        return StateRecord(call.key, merged)

    # ---------------------------------------------------------------- replay

    def apply(self, record: StateRecord, offset: int) -> None:
        key, value = record.key, record.value
        if value is None:
            self._states.pop(key, None)
            return
        state = self._states.get(key)
        if isinstance(value, Snapshot):
            if state is None:
                state = _State(value, offset, value.leader_epoch, value.state_epoch)
                self._states[key] = state
            state.snapshot, state.offset, state.updates = value, offset, 0
            state.state_epoch = max(state.state_epoch, value.state_epoch)
        elif state is None:  # retention, or another program, has removed the snapshot
            nothing = Snapshot(value.snapshot_epoch, 0, 0, NO_OFFSET, NO_COUNT, (), 0, 0)
            self._states[key] = _State(_merged(nothing, value), offset, value.leader_epoch, 0)
            return
        else:
            state.snapshot = _merged(state.snapshot, value)
            state.updates += 1
        state.leader_epoch = max(state.leader_epoch, value.leader_epoch)

    # ---------------------------------------------------------------- upkeep

    def of_topics(self, topic_ids: Collection[bytes]) -> list[StateRecord]:
        """The records that delete the states of these topics."""
        return [StateRecord(key, None) for key in self._states if key.topic_id in topic_ids]

    def cold(self, now_ms: int, interval_ms: int) -> list[StateRecord]:
        """Snapshots in place of those that are older than the interval, so that the log can be cut
        off behind them; none if nothing else was written since the last such round."""
        states = self._states.items()
        if all(s.snapshot.created_ms != s.snapshot.written_ms for _, s in states):
            return []
        return [
            StateRecord(
                key,
                replace(
                    state.snapshot,
                    snapshot_epoch=state.snapshot.snapshot_epoch + 1,
                    written_ms=now_ms,
                ),
            )
            for key, state in states
            if now_ms - state.snapshot.written_ms >= interval_ms
        ]

    def first_needed(self) -> int | None:
        """The offset below which no record is needed any more; None without states."""
        return min((state.offset for state in self._states.values()), default=None)


def _initialized(call: StateCall, state: _State | None, now_ms: int) -> StateRecord:
    epoch = 0 if state is None else state.snapshot.snapshot_epoch + 1
    start = call.start_offset
    snapshot = Snapshot(epoch, call.state_epoch, 0, start, NO_COUNT, (), now_ms, now_ms)
    return StateRecord(call.key, snapshot)


def _merged(so_far: Snapshot, update: Update) -> Snapshot:
    """The state with what an update adds."""
    late = update.start_offset != NO_OFFSET and update.start_offset < so_far.start_offset
    start = max(so_far.start_offset, update.start_offset)
    count = so_far.delivery_complete_count if late else update.delivery_complete_count
    epoch = so_far.leader_epoch if update.leader_epoch == NO_EPOCH else update.leader_epoch
    return replace(
        so_far,
        leader_epoch=epoch,
        start_offset=start,
        delivery_complete_count=count,
        batches=combined((*so_far.batches, *update.batches), start),
    )


def _invalid(detail: str) -> NoReturn:
    raise ApiError(ErrorCode.INVALID_REQUEST, detail)
