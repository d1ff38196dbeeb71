"""Administrators at work while brokers fail, and a topic that is made again under its name.

One changes a topic of its own: more partitions, a property, other replicas, and now and then a
cancellation of that move.  It is written so seldom that most of its leaders append nothing in their
terms.  Another asks every broker about groups, transactions, producers, directories and the
cluster.  A third deletes a topic, makes it again under the same name, and writes to it; a fourth
makes that topic at the same moment, with another configuration.  The checks, when all is whole
again:

* L2: every broker gives a property the value that was acknowledged last, or one whose outcome is
  unknown; a topic has at least the partitions that were acknowledged.
* L2, too: the topic that two made has the configuration of the one whose request was acknowledged.
* L2, too: no move is under way any more, and its replicas are those of a target that was asked for.
* C7: a topic that was made again has nothing of its former lives.
* R2: a move ends only when its whole target has been in the ISR (`ZooKeeperRules`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import trio

from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.messages import (
    DescribeClusterRequest,
    DescribeConfigsRequest,
    DescribeGroupsRequest,
    DescribeLogDirsRequest,
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    ListGroupsRequest,
    ListPartitionReassignmentsRequest,
    ListTransactionsRequest,
)
from highwater.simulation.requested import Requested
from highwater.simulation.workloads.part import Part, Shared, Topic, Works
from highwater.simulation.workloads.plain_client import (
    UNKNOWN_OUTCOME,
    Failed,
    SimClient,
    check_code,
)
from highwater.simulation.workloads.workload import make_batch

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


GOVERNED, REBORN = "governed", "reborn"
MOST_PARTITIONS = 5
PROPERTY, FIRST_VALUE = "max.message.bytes", 1_000_000
DONE_S = 60.0
_CANCEL = None
_TP = TopicPartition(REBORN, 0)


class AdminClient(SimClient):
    """The administrators' calls."""

    def addresses(self) -> list[tuple[str, int]]:
        return list(self._bootstrap)

    async def moves(self) -> list[TopicPartition]:
        """The moves under way."""
        request = ListPartitionReassignmentsRequest(timeout_ms=2000, topics=None)
        answer = await self._call(await self._controller(), request, 0)
        check_code(answer.error_code)
        return [TopicPartition(t.name, p.partition_index) for t in answer.topics
                for p in t.partitions]  # fmt: skip

    async def value(self, address: tuple[str, int], topic: str, name: str) -> str:
        """A topic's property, as this broker tells it."""
        resource = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=2, resource_name=topic, configuration_keys=[name]
        )
        request = DescribeConfigsRequest(resources=[resource], include_synonyms=False)
        answer = (await self._call(address, request, 1)).results[0]
        check_code(answer.error_code)
        return str(answer.configs[0].value)

    async def question(self, address: tuple[str, int], tp: TopicPartition) -> None:
        """Asks one of the questions that change nothing."""
        topic = DescribeProducersRequest.TopicRequest
        producers = topic(name=tp.topic, partition_indexes=[tp.partition])
        requests: list[tuple[Any, int]] = [
            (ListGroupsRequest(states_filter=[]), 4),
            (DescribeGroupsRequest(groups=["crew"], include_authorized_operations=False), 5),
            (ListTransactionsRequest(state_filters=[], producer_id_filters=[]), 0),
            (DescribeTransactionsRequest(transactional_ids=["bank-0"]), 0),
            (DescribeProducersRequest(topics=[producers]), 0),
            (DescribeLogDirsRequest(topics=None), 1),
            (DescribeClusterRequest(include_cluster_authorized_operations=False), 0),
            (ListPartitionReassignmentsRequest(timeout_ms=1000, topics=None), 0),
        ]
        await self._call(address, *self.random.choice(requests))


@dataclass
class Administrators(Part):
    """The administrators, and what they know."""

    flag = "admin"
    help = "Administrators, and a topic made again."
    topics = (Topic(GOVERNED), Topic(REBORN))
    client_kind, last = AdminClient, "auditor"

    requested: Requested = field(default_factory=Requested)
    """The moves and partitions that were asked for, by others too."""
    acked: int = FIRST_VALUE
    """The property's value that was acknowledged last."""
    uncertain: set[int] = field(default_factory=set)
    """Its values of unknown outcome: they may come late."""
    values: int = FIRST_VALUE
    written: set[bytes] = field(default_factory=set)
    """Acknowledged values of the topic that is made again."""
    sent: int = 0
    lives: int = 0
    """How often the topic was made again."""
    begun: trio.Event = field(default_factory=trio.Event)
    """Set when the topic begins to be made again; then there is another for its next life."""
    there: trio.Event = field(default_factory=trio.Event)
    """Set when the topic is there."""
    made_with: int | None = None
    """The property's value by the request of this life that was acknowledged, if one was."""
    unheard: int = -2
    """The last life in which a request to make it had an unknown outcome."""

    @classmethod
    def of(cls, shared: Shared) -> Self:
        return cls(*shared.told, shared.cluster.requested)

    def clients(self) -> Works:
        topics = {"midwife": self.rebirth, "rival": self.compete}
        return {"governor": self.govern, "inquirer": self.ask, **topics}

    async def _try(self, what: str, call: Awaitable[object]) -> str:
        """The error's name; empty where the call succeeded."""
        try:
            await call
        except Failed as failed:
            self.errors[failed.name] += 1
            return failed.name
        self.count[what] += 1
        return ""

    # -- a topic that is changed ------------------------------------------------------------------

    async def govern(self, client: AdminClient) -> None:
        """Changes the topic until cancelled."""
        works: list[Callable[[AdminClient], Awaitable[None]]]
        works = [self._grow, self._set, self._move, self._move, self._write]
        while True:
            await client.pause(0.3, 1.5)
            await self._rest()
            await client.random.choice(works)(client)

    async def _rest(self) -> None:
        if self.resting:
            await trio.sleep_forever()

    async def _grow(self, client: AdminClient) -> None:
        there = sum(tp.topic == GOVERNED for tp in self.rules.partitions)
        if there < MOST_PARTITIONS and not await self._try(
            "admin: partitions added", client.grow_topic(GOVERNED, there + 1)
        ):
            self.requested.grown(GOVERNED, there + 1)

    async def _write(self, client: AdminClient) -> None:
        """Seldom enough that most of its leaders append nothing in their terms."""
        there = sorted(tp for tp in self.rules.partitions if tp.topic == GOVERNED)
        if not there:
            return
        tp = client.random.choice(there)
        self.sent += 1
        value = b"governed.%d" % self.sent
        try:
            base = await client.produce(tp, make_batch([value], None, 0), -1)
        except Failed as failed:
            self.errors[failed.name] += 1
            client.forget(tp)
            return
        self.count["admin: records"] += 1
        self.rules.acknowledged(tp, base, value)

    async def _set(self, client: AdminClient) -> None:
        self.values += 1
        value, address = self.values, client.random.choice(client.addresses())
        call = client.alter_topic(address, GOVERNED, PROPERTY, str(value))
        self.uncertain.add(value)
        error = await self._try("admin: properties set", call)
        if not error:
            self.acked = value
        if error not in UNKNOWN_OUTCOME:
            self.uncertain.remove(value)

    async def _move(self, client: AdminClient) -> None:
        there = sorted(tp for tp in self.rules.partitions if tp.topic == GOVERNED)
        if not there:
            return
        tp = client.random.choice(there)
        brokers = list(range(1, len(client.addresses()) + 1))
        target = client.random.sample(brokers, client.random.randint(1, min(3, len(brokers))))
        self.requested.move(tp, self.rules.partitions[tp].assigned, target)
        if await self._try("admin: moves", client.reassign(tp, target)):
            return
        if client.random.random() < 0.5:
            await client.pause(0.0, 0.4)
            self.requested.move(tp, self.rules.partitions[tp].assigned, _CANCEL)
            await self._try("admin: moves cancelled", client.reassign(tp, _CANCEL))

    # -- questions --------------------------------------------------------------------------------

    async def ask(self, client: AdminClient) -> None:
        """Asks all brokers until cancelled."""
        while True:
            await client.pause(0.1 / self.pace, 0.4 / self.pace)
            tp = client.random.choice(sorted(self.rules.partitions))
            address = client.random.choice(client.addresses())
            await self._try("admin: questions", client.question(address, tp))

    # -- a topic that is made again ---------------------------------------------------------------

    async def rebirth(self, client: AdminClient) -> None:
        """Deletes the topic and makes it again, until cancelled."""
        while True:
            await client.pause(0.5, 4.0)
            await self._rest()
            for n in range(client.random.randint(1, 6)):
                await client.pause(0.02, 0.3)
                value = b"%d/%d" % (self.lives, n)
                if await self._try(
                    "reborn: sent", client.produce(_TP, make_batch([value], None, 0), 1)
                ):
                    client.forget(_TP)
                    await client.pause()
                else:
                    self.written.add(value)
            await self._compare(client, {2 * self.lives, 2 * self.lives + 1})
            await self._delete(client)
            self.lives += 1
            await self._make(client)
            self.count["reborn: lives"] += 1
            client.forget(_TP)

    async def _delete(self, client: AdminClient) -> None:
        while True:
            error = await self._try("reborn: calls", client.delete_topic(REBORN))
            # a controller whose metadata is not yet told of a new topic says that there is none
            gone = error == "UNKNOWN_TOPIC_OR_PARTITION" and _TP not in self.rules.partitions
            if not error or gone:
                return
            await client.pause(0.1, 0.5)

    async def _make(self, client: AdminClient) -> None:
        begun, self.begun = self.begun, trio.Event()
        self.there, self.made_with = trio.Event(), None
        begun.set()
        while not await self._made(client, FIRST_VALUE + 2 * self.lives):
            await client.pause(0.1, 0.5)
        self.there.set()

    async def _made(self, client: AdminClient, value: int) -> bool:
        """Whether the topic is there: by this attempt, the other's, or one whose answer was lost.
        While the former one is being deleted, its name is taken, too."""
        life, replicas = self.lives, min(3, len(client.addresses()))
        call = client.create_topic(REBORN, 1, replicas, {PROPERTY: str(value)})
        error = await self._try("reborn: calls", call)
        if life != self.lives:
            return True  # the answer came late, and is of a former life
        if not error:
            self.made_with = value
        if error in UNKNOWN_OUTCOME:
            self.unheard = life
        exists = self.unheard >= life - 1 or self.made_with is not None  # one may come late
        return not error or (error == "TOPIC_ALREADY_EXISTS" and exists)

    async def compete(self, client: AdminClient) -> None:
        """Makes the topic whenever the other one does, until cancelled."""
        while True:
            await self.begun.wait()
            there, value = self.there, FIRST_VALUE + 2 * self.lives + 1
            await client.pause(0.0, 0.003)
            while not there.is_set() and not await self._made(client, value):
                await client.pause(0.1, 0.5)
            self.count["reborn: by two"] += 1

    # -- the verdict ------------------------------------------------------------------------------

    async def judge(self, client: AdminClient) -> None:
        await self._judge_moves(client)
        await self._judge_topic(client)
        await self._judge_reborn(client)

    async def _judge_moves(self, client: AdminClient) -> None:
        deadline, left = trio.current_time() + DONE_S, ["not yet asked"]
        while left and trio.current_time() < deadline:
            try:
                told = set(await client.moves())
            except Failed as failed:
                self.errors[failed.name] += 1
            else:  # a controller that has forgotten one names none
                moving = {tp for tp, one in self.rules.partitions.items() if one.target is not None}
                left = sorted(map(str, told | moving))
            await client.pause(0.1, 0.3)
        if left:
            self.rules.broken("L2", f"{DONE_S:g} s after all is well, moves are under way: {left}")
        for tp, targets in sorted(self.requested.moves.items()):
            truth = self.rules.partitions.get(tp)
            if truth is None or tp.topic != GOVERNED or truth.assigned in targets:
                continue
            # a move puts the target's replicas first, and its cancellation takes the others away
            # and leaves that order (ReplicaAssignment.originReplicas)
            anyhow = (
                {frozenset(one) for one in targets} if tp in self.requested.cancelled else set()
            )
            if frozenset(truth.assigned) not in anyhow:
                self.rules.broken("L2", f"{tp} is on {truth.assigned}, and nobody asked for that")

    async def _judge_topic(self, client: AdminClient) -> None:
        there = sum(tp.topic == GOVERNED for tp in self.rules.partitions)
        if there < (acked := max(1, self.requested.partitions[GOVERNED])):
            self.rules.broken("L2", f"{GOVERNED} has {there} partitions; {acked} were acknowledged")
        allowed = {self.acked, *self.uncertain}
        for address in client.addresses():
            try:
                found = int(await client.value(address, GOVERNED, PROPERTY))
            except Failed as failed:
                self.errors[failed.name] += 1
                continue
            if found not in allowed and self.count["admin: properties set"]:
                self.rules.broken(
                    "L2", f"{GOVERNED}: {address[0]} has {PROPERTY} {found}; {self.acked} was "
                    f"acknowledged last"
                )  # fmt: skip

    async def _judge_reborn(self, client: AdminClient) -> None:
        if _TP not in self.rules.partitions:
            return
        await self._compare(client)
        try:
            polled = await client.fetch(_TP, 0)
        except Failed as failed:
            self.errors[failed.name] += 1
            return
        now = b"%d/" % self.lives
        old = [v for _, _, v in polled.records if v in self.written and not v.startswith(now)]
        if old:
            self.rules.broken("C7", f"{_TP}, in its life {self.lives}, has {old[0]!r}")

    async def _compare(self, client: AdminClient, of: set[int] | None = None) -> None:
        """Holds the topic's configuration to the request that made it; with `of`, only where it has
        one of these values: while brokers fail, one may know a former life's."""
        for address in client.addresses() if self.made_with is not None else ():
            try:
                found = int(await client.value(address, REBORN, PROPERTY))
            except Failed as failed:
                self.errors[failed.name] += 1
                continue
            self.count["reborn: configurations compared"] += 1
            if found != self.made_with and (of is None or found - FIRST_VALUE in of):
                self.rules.broken(
                    "L2", f"{REBORN}: {address[0]} has {PROPERTY} {found}, and it was made with "
                    f"{self.made_with}"
                )  # fmt: skip
