"""One group, without a broker: its steps, and the effects that they ask for, which the test carries
out or leaves out."""

from __future__ import annotations

from typing import Any

import pytest

from highwater.broker.coordinator.group import offsets
from highwater.broker.coordinator.group.group import (
    REBALANCE,
    SESSION,
    SYNC,
    Group,
    Outcome,
    State,
    Write,
)
from highwater.broker.coordinator.group.protocol import Join, Joined, Limits, Sync, Synced
from highwater.broker.coordinator.group.rebalance import Rebalancing
from highwater.broker.coordinator.group.records import CommittedOffset, GroupLogRecord
from highwater.kafka.errors import ErrorCode
from highwater.kafka.types import TopicPartition

SUBSCRIPTION = b"\x00\x00\x00\x00\x00\x01\x00\x01t\xff\xff\xff\xff"
"""A consumer's subscription to topic `t`."""


class Table:
    """Answers by ticket, timers by name, writes in order; time is the wall clock's."""

    def __init__(self, initial_delay_ms: int = 0, max_size: int = 100) -> None:
        self.group = Group("g")
        self.steps = Rebalancing(self.group, Limits(initial_delay_ms, max_size))
        self.answers: dict[Any, Any] = {}
        self.timers: dict[tuple[str, str], int] = {}
        self.writes: list[Write] = []
        self.log: list[GroupLogRecord] = []
        self.now = 1000
        self.ids = 0

    def do(self, outcome: Outcome) -> None:
        for ticket, answer in outcome.answers:
            assert ticket not in self.answers, f"{ticket} is answered twice"
            self.answers[ticket] = answer
        for timer, delay in outcome.timers.items():
            if delay is None:
                self.timers.pop(timer, None)
            else:
                self.timers[timer] = delay
        for write in outcome.writes:
            end = len(self.log) + sum(len(pending.records) for pending in self.writes)
            self.group.appended(write.records, end)
            self.writes.append(write)

    def committed(self, count: int | None = None) -> None:
        """The HW has passed all writes so far, or so many of them."""
        while self.writes and count != 0:
            write = self.writes.pop(0)
            for record in write.records:
                self.log.append(record)
                self.group.replay(record, len(self.log) - 1)
            self.do(write.then(ErrorCode.NONE))
            count = None if count is None else count - 1

    def failed(self, code: ErrorCode) -> Write:
        write = self.writes.pop(0)
        self.do(write.then(code))
        return write

    def join(self, ticket: str, member_id: str = "", **changed: Any) -> Any:
        """The answer, if it came at once."""
        self.ids += 1
        values: dict[str, Any] = {
            "member_id": member_id, "instance_id": None, "client_id": "c", "client_host": "/h",
            "rebalance_timeout_ms": 60_000, "session_timeout_ms": 10_000,
            "protocol_type": "consumer", "protocols": (("range", SUBSCRIPTION),),
            "new_id": f"m{self.ids}", "needs_known_id": False,
        }  # fmt: skip
        self.do(self.steps.join(Join(**{**values, **changed}), ticket, self.now))
        return self.answers.get(ticket)

    def sync(self, ticket: str, member_id: str, generation: int, **assigned: bytes) -> Any:
        request = Sync(member_id, None, generation, None, None, tuple(assigned.items()))
        self.do(self.steps.sync(request, ticket, self.now))
        return self.answers.get(ticket)

    def heartbeat(self, member_id: str, generation: int) -> ErrorCode:
        code, outcome = self.steps.heartbeat(member_id, None, generation)
        self.do(outcome)
        return code

    def leave(self, member_id: str, instance_id: str | None = None) -> ErrorCode:
        code, outcome = self.steps.leave(member_id, instance_id, self.now)
        self.do(outcome)
        return code

    def fire(self, kind: str, member_id: str = "") -> None:
        del self.timers[kind, member_id]
        if kind == SESSION:
            self.do(self.steps.session_expired(member_id, self.now))
        elif kind == REBALANCE:
            self.do(self.steps.rebalance_due(self.now))
        else:
            assert kind == SYNC
            self.do(self.steps.sync_due(self.now))

    def begin(self) -> None:
        """Lets the first rebalance happen, even if it is held back several times."""
        while self.group.state is State.PREPARING_REBALANCE:
            self.fire(REBALANCE)

    def commit(
        self, ticket: str, offset: int, member_id: str = "", generation: int = -1, topic: str = "t"
    ) -> ErrorCode:
        value = {TopicPartition(topic, 0): CommittedOffset(offset, commit_ms=self.now)}
        code, outcome = offsets.commit(self.group, member_id, None, generation, value, ticket)
        self.do(outcome)
        return code

    def stable(self, members: int = 2) -> list[str]:
        """Makes a group of so many members with their assignments; returns their ids, the leader
        first."""
        for n in range(members):
            self.join(f"join{n}")
        self.begin()
        joined: list[Joined] = [self.answers[f"join{n}"] for n in range(members)]
        ids = [j.member_id for j in joined]
        for n in reversed(range(members)):
            given = {i: i.encode() for i in ids} if n == 0 else {}
            self.sync(f"sync{n}", ids[n], joined[0].generation, **given)
        self.committed()
        assert self.group.state is State.STABLE
        assert all(isinstance(self.answers[f"sync{n}"], Synced) for n in range(members))
        return ids


@pytest.fixture
def table() -> Table:
    return Table()


@pytest.fixture
def make_table() -> type[Table]:
    return Table
