"""A consumer group, its topics and its members, for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from highwater.broker.coordinator.group.consumer.consumer_group import ConsumerGroup
from highwater.broker.coordinator.group.consumer.consumer_steps import (
    Step,
    Steps,
)
from highwater.broker.coordinator.group.consumer.heartbeats import (
    Beat,
    Heartbeat,
    Limits,
)
from highwater.broker.coordinator.group.consumer.members import Partitions
from highwater.broker.coordinator.group.consumer.records import ConsumerRecord
from highwater.broker.coordinator.group.consumer.subscribed_topics import Topic
from highwater.kafka.errors import ApiError

LIMITS = Limits(45_000, 5000, 10, ("uniform", "range"))


class Known:
    """Topics of a cluster; `version` grows when one comes or goes."""

    def __init__(self) -> None:
        self.known: dict[str, Topic] = {}
        self.version = 0
        self.racks_of: tuple[tuple[str, ...], ...] = ()

    def add(self, name: str, partitions: int) -> bytes:
        self.version += 1
        topic_id = name.encode().ljust(16, b"\0")
        self.known[name] = Topic(topic_id, partitions)
        return topic_id

    def names(self) -> Iterable[str]:
        return self.known

    def topic(self, name: str) -> Topic | None:
        return self.known.get(name)

    def name_of(self, topic_id: bytes) -> str | None:
        return next((name for name, t in self.known.items() if t.topic_id == topic_id), None)

    def racks(self, name: str) -> tuple[tuple[str, ...], ...]:
        return self.racks_of


class Place:
    """A group in which each step's records are applied at once, as if they were committed."""

    def __init__(self, limits: Limits = LIMITS, **topics: int) -> None:
        self.topics = Known()
        for name, partitions in topics.items():
            self.topics.add(name, partitions)
        self.group = ConsumerGroup("g")
        self.limits = limits
        self.written: list[ConsumerRecord] = []
        self.timers: dict[tuple[str, str], int | None] = {}
        self.step = Step()
        self.now_ms = 0

    @property
    def steps(self) -> Steps:
        return Steps(self.group, self.limits, self.topics)

    def state(self) -> str:
        return self.group.state.value

    def to_resolve(self) -> list[str]:
        """The regular expressions that the latest step wants to be looked up."""
        return list(self.step.resolve)

    def take(self, step: Step) -> Step:
        self.step = step
        for record in step.records:
            self.group.apply(record)
        self.written += step.records
        self.timers.update(step.timers)
        return step

    def beat(self, member_id: str, epoch: int, **request: Any) -> Beat:
        asked = Heartbeat(member_id, epoch, client_id="c", client_host="/h", **request)
        steps = self.steps
        step = steps.leave(asked) if asked.leaves else steps.heartbeat(asked, self.now_ms)
        answer = self.take(step).answer
        assert answer is not None
        return answer

    def join(self, member_id: str, *topics: str, **request: Any) -> Beat:
        asked: dict[str, Any] = {"rebalance_timeout_ms": 60_000, "owned": {}, **request}
        return self.beat(member_id, 0, topics=tuple(topics), **asked)

    def refusal(self, member_id: str, epoch: int, **request: Any) -> str:
        try:
            answer = self.beat(member_id, epoch, **request)
        except ApiError as e:
            return e.code.name
        return answer.error.name

    def assigned(self, member_id: str) -> Partitions:
        return self.group.members[member_id].current.assigned

    def settle(self) -> None:
        """Heartbeats of all members, who give up at once what they must, until nothing moves."""
        for _ in range(20):
            before = len(self.written)
            for member_id, member in list(self.group.members.items()):
                if member.current.epoch >= 0:
                    owned = dict(self.group.members[member_id].current.assigned)
                    self.beat(member_id, member.current.epoch, owned=owned)
            if len(self.written) == before:
                return
        raise AssertionError("the group does not come to rest")
