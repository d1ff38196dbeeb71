"""Members come, go and lose answers by chance, and coordinators change: no partition has two
owners, and in the end all partitions are shared out.

A member here is as KIP-848 wants it: it gives up what an answer no longer names before it takes
anything new, and reports what it has.
"""

from __future__ import annotations

import random

import pytest

from highwater.broker.coordinator.group.consumer.consumer_group import ConsumerGroup
from highwater.broker.coordinator.group.consumer.consumer_steps import MEMBER_SESSION
from highwater.broker.coordinator.group.consumer.heartbeats import Beat
from highwater.broker.coordinator.group.consumer.members import AWAY, Partitions
from highwater.kafka.errors import ApiError, ErrorCode
from tests.unit.broker.coordinator.group.consumer.consumer_place import Place

TOPICS = ("t", "u", "v")
PART_LOST = 0.15
"""How many answers never reach their member."""


class Client:
    """A member by its own knowledge."""

    def __init__(self, member_id: str, topics: tuple[str, ...], instance_id: str | None) -> None:
        self.member_id = member_id
        self.topics = topics
        self.instance_id = instance_id
        self.epoch = 0
        self.owned: Partitions = {}
        self.says_all = True

    def beat(self, place: Place, chance: random.Random) -> None:
        joins = self.epoch == 0
        try:
            answer = place.beat(
                self.member_id, self.epoch, instance_id=self.instance_id,
                rebalance_timeout_ms=5000 if self.says_all else -1,
                topics=self.topics if self.says_all else None,
                owned={} if joins else self.owned,
            )  # fmt: skip
        except ApiError as e:
            self.refused(place, e.code)
            return
        if chance.random() < PART_LOST:
            self.says_all = True
        else:
            self.take(answer)

    def refused(self, place: Place, code: ErrorCode) -> None:
        self.epoch, self.owned, self.says_all = 0, {}, True
        if code is ErrorCode.UNRELEASED_INSTANCE_ID:
            # it had joined, and does not know: its own session must end first, as in Kafka
            place.take(place.steps.timed_out(MEMBER_SESSION, self.member_id))
        elif code not in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH):
            raise AssertionError(code)

    def take(self, answer: Beat) -> None:
        self.epoch, self.says_all = answer.epoch, False
        if answer.assignment is not None:
            self.owned = answer.assignment


def check_owners(place: Place, clients: dict[str, Client]) -> None:
    owners: dict[tuple[bytes, int], str] = {}
    for client in clients.values():
        for topic_id, numbers in client.owned.items():
            for number in numbers:
                before = owners.setdefault((topic_id, number), client.member_id)
                assert before == client.member_id, (topic_id, number, before, client.member_id)
    held = {
        where: member_id
        for member_id, member in place.group.members.items()
        for where in member.current.held
    }
    assert held == place.group.owners


def something(place: Place, clients: dict[str, Client], chance: random.Random, now: int) -> None:
    what = chance.random()
    if what < 0.12 and len(clients) < 6:
        topics = tuple(sorted(chance.sample(TOPICS, chance.randint(1, 3))))
        instance = f"i{now}" if chance.random() < 0.3 else None
        clients[f"m{now}"] = Client(f"m{now}", topics, instance)
        return
    if what < 0.15:
        name = chance.choice(TOPICS)
        topic = place.topics.topic(name)
        assert topic is not None
        place.topics.add(name, topic.partitions + 1)
        return
    if what < 0.18:  # another coordinator, which reads the records
        place.group = ConsumerGroup("g")
        for record in place.written:
            place.group.apply(record)
        return
    if not clients:
        return
    client = clients[chance.choice(sorted(clients))]
    if what < 0.21:
        client.topics = tuple(sorted(chance.sample(TOPICS, chance.randint(1, 3))))
        client.says_all = True
    elif what < 0.24:
        client.owned = {}
        place.take(place.steps.timed_out(MEMBER_SESSION, client.member_id))
        del clients[client.member_id]
    elif what < 0.27 and client.epoch:
        del clients[client.member_id]
        static = client.instance_id is not None
        place.beat(client.member_id, AWAY if static else -1, instance_id=client.instance_id)
        if static:
            new = Client(f"m{now}", client.topics, client.instance_id)
            clients[new.member_id] = new
    else:
        client.beat(place, chance)


@pytest.mark.parametrize("seed", range(12))
def test_no_partition_has_two_owners(seed: int) -> None:
    chance = random.Random(seed)
    place = Place(t=5, u=3, v=1)
    clients: dict[str, Client] = {}
    for now in range(400):
        something(place, clients, chance, now)
        check_owners(place, clients)
    clients["last"] = Client("last", TOPICS, None)
    for member_id in sorted(
        set(place.group.members) - set(clients)
    ):  # static ones that never came back
        assert place.group.members[member_id].current.epoch == AWAY
        place.take(place.steps.timed_out(MEMBER_SESSION, member_id))
    for _ in range(30):
        for client in clients.values():
            client.beat(place, chance)
            check_owners(place, clients)
    assert set(place.group.members) == set(clients)
    wanted = {topic_id for topic_id, _ in place.topics.known.values()}
    owned = sum(len(numbers) for c in clients.values() for numbers in c.owned.values())
    assert owned == sum(topic.partitions for topic in place.topics.known.values())
    assert {topic_id for c in clients.values() for topic_id in c.owned} == wanted
    assert place.state() == "Stable"
