"""A clerk who keeps offsets in groups without members, takes them back, and deletes the groups.

A *folder* is such a group.  The clerk commits offsets to it, deletes some (OffsetDelete), deletes
the whole group (DeleteGroups), and begins it again.  One call follows the other, and a folder is
given up when the outcome of a call is unknown: so what it holds is known exactly.  A trainee
deletes folders that the clerk has put away, also while nothing can be written to them.

* G4: an answer has what was acknowledged last, neither less nor what was taken back; and every
  folder has it still when all is whole again.
* L2: a topic whose whole configuration is replaced (AlterConfigs) has, at every broker, what was
  acknowledged last or what is of unknown outcome, and the default where it was left out.

Now and then that configuration allows unclean elections, which take nothing from a topic that
nobody writes to.  Where brokers have two log directories, the clerk moves that topic's replicas,
too (AlterReplicaLogDirs).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import trio

from highwater.kafka.wire.messages import (
    AlterConfigsRequest,
    AlterReplicaLogDirsRequest,
    DeleteGroupsRequest,
    DescribeConfigsRequest,
    DescribeLogDirsRequest,
    OffsetDeleteRequest,
)
from highwater.simulation.rules.allowed_losses import (
    GROUPS,
    Moment,
    coordinator_of,
    former_leads,
    lost_between,
    moment,
)
from highwater.simulation.workloads.group_client import PARTITIONS, GroupClient, Seat
from highwater.simulation.workloads.part import Part, Works
from highwater.simulation.workloads.plain_client import UNKNOWN_OUTCOME, Failed, check_code
from highwater.simulation.workloads.static_members import TOPIC
from highwater.simulation.workloads.transactional.transactions_client import GROUP as COORDINATOR

if TYPE_CHECKING:
    pass

NONE = -1
"""The offset in an answer if nothing is committed."""
KEPT = 40
"""How many of the last folders are checked again at the end."""
JUDGE_S = 30.0
SIZE, TIME = "max.message.bytes", "retention.ms"
UNCLEAN = "unclean.leader.election.enable"
DEFAULTS = {SIZE: "1048588", TIME: "604800000", UNCLEAN: "false"}
_UNCLEAN = {UNCLEAN: "true"}
NOTHING_DONE = frozenset(
    {"COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "GROUP_ID_NOT_FOUND"}
)
"""Errors of calls that certainly had no effect; the second one says that too few replicas are in
sync to write anything."""


class FilingClient(GroupClient):
    """The clerk's calls, one attempt each; `group` is the folder."""

    topic = TOPIC

    async def delete_offset(self, partition: int) -> None:
        topic = OffsetDeleteRequest.OffsetDeleteRequestTopic
        one = topic.OffsetDeleteRequestPartition(partition_index=partition)
        request = OffsetDeleteRequest(
            group_id=self.group, topics=[topic(name=self.topic, partitions=[one])]
        )
        answer = await self._call(await self.coordinator(COORDINATOR, self.group), request, 0)
        check_code(answer.error_code or answer.topics[0].partitions[0].error_code)

    async def delete_group(self) -> None:
        request = DeleteGroupsRequest(groups_names=[self.group])
        answer = await self._call(await self.coordinator(COORDINATOR, self.group), request, 2)
        check_code(answer.results[0].error_code)

    async def replace_config(self, address: tuple[str, int], configs: dict[str, str]) -> None:
        """Gives the topic these properties, and no other."""
        kind = AlterConfigsRequest.AlterConfigsResource
        values = [kind.AlterableConfig(name=name, value=value) for name, value in configs.items()]
        resource = kind(resource_type=2, resource_name=self.topic, configs=values)
        request = AlterConfigsRequest(resources=[resource], validate_only=False)
        answer = await self._call(address, request, 1)
        check_code(answer.responses[0].error_code)

    async def config(self, address: tuple[str, int]) -> dict[str, str]:
        """The properties in DEFAULTS, as this broker has them."""
        resource = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=2, resource_name=self.topic, configuration_keys=list(DEFAULTS)
        )
        request = DescribeConfigsRequest(resources=[resource], include_synonyms=False)
        answer = (await self._call(address, request, 1)).results[0]
        check_code(answer.error_code)
        return {str(one.name): str(one.value) for one in answer.configs}

    async def move_between_directories(self, address: tuple[str, int]) -> bool:
        """Asks a broker to move one of the topic's replicas to another of its log directories;
        False where it has no other, or no replica."""
        answer = await self._call(address, DescribeLogDirsRequest(topics=None), 1)
        paths = [str(one.log_dir) for one in answer.results if not one.error_code]
        places = [
            (one.log_dir, partition.partition_index)
            for one in answer.results
            for topic in one.topics
            for partition in topic.partitions
            if topic.name == self.topic and not partition.is_future_key
        ]
        if len(paths) < 2 or not places:
            return False
        place, partition = self.random.choice(places)
        target = self.random.choice([path for path in paths if path != place] or paths)
        directory = AlterReplicaLogDirsRequest.AlterReplicaLogDir
        topic = directory.AlterReplicaLogDirTopic(name=self.topic, partitions=[partition])
        request = AlterReplicaLogDirsRequest(dirs=[directory(path=target, topics=[topic])])
        moved = await self._call(address, request, 1)
        check_code(moved.results[0].partitions[0].error_code)
        return True


class Put(NamedTuple):
    """A folder that is at rest: what it holds, and the log's states before its first call and after
    its last."""

    name: str
    held: dict[int, int]
    since: Moment
    until: Moment


@dataclass
class Filing(Part):
    """The clerk, and what the folders hold."""

    needs = ("static_members",)
    client_kind, last = FilingClient, "archivist"

    put: deque[Put] = field(default_factory=lambda: deque(maxlen=KEPT))
    folders: int = 0
    acked: dict[str, str] = field(default_factory=lambda: dict(DEFAULTS))
    """The topic's configuration that was acknowledged last."""
    uncertain: list[dict[str, str]] = field(default_factory=list)
    """Configurations whose requests have an unknown outcome: they may still be set."""

    def clients(self) -> Works:
        return {"clerk": self.file, "registrar": self.govern, "trainee": self.clear}

    # -- folders --------------------------------------------------------------------------------

    async def file(self, client: FilingClient) -> None:
        """Fills and empties one folder after the other, until cancelled."""
        while True:
            self.folders += 1
            client.group = f"folder-{self.folders}"
            since = self._moment(client)
            held = dict.fromkeys(range(PARTITIONS), NONE)
            try:
                for _ in range(client.random.randint(3, 12)):
                    await client.pause(0.02, 0.2)
                    await self._step(client, held)
                    await self._look(client, held, since, self._moment(client))
            except Failed as failed:
                self.errors[failed.name] += 1
                client.lose(COORDINATOR, client.group)
                await client.pause(0.02, 0.2)
            else:
                self.count["filing: folders put away"] += 1
                self.put.append(Put(client.group, held, since, self._moment(client)))

    async def clear(self, client: FilingClient) -> None:
        """Deletes folders that were put away, and looks at each, until cancelled."""
        while True:
            await client.pause(0.1, 0.5)
            if not self.put:
                continue
            folder = client.random.choice(self.put)
            self.put.remove(folder)
            client.group, held, since = folder.name, dict(folder.held), self._moment(client)
            try:
                await client.delete_group()
            except Failed as failed:
                self.errors[failed.name] += 1
                client.lose(COORDINATOR, client.group)
                if failed.name not in NOTHING_DONE:
                    continue
                self.count["filing: folders not deleted"] += 1
                since = folder.since
            else:
                held = dict.fromkeys(held, NONE)
                self.count["filing: folders deleted"] += 1
            until = self._moment(client)
            await self._look(client, held, since, until)
            self.put.append(Put(client.group, held, since, until))

    def _moment(self, client: FilingClient) -> Moment:
        return moment(self.rules, GROUPS, client.group)

    async def _step(self, client: FilingClient, held: dict[int, int]) -> None:
        """One call, and what it changes; Failed where the outcome is unknown."""
        random = client.random
        partition, choice = random.randrange(PARTITIONS), random.random()
        try:
            if choice < 0.6:
                offset = random.randint(0, 1000)
                await client.commit(Seat("", -1, ()), partition, offset)
                held[partition] = offset
                self.count["filing: committed"] += 1
            elif choice < 0.85:
                await client.delete_offset(partition)
                held[partition] = NONE
                self.count["filing: offsets deleted"] += 1
            else:
                await client.delete_group()
                held.update(dict.fromkeys(held, NONE))
                self.count["filing: groups deleted"] += 1
        except Failed as failed:
            if failed.name == "NON_EMPTY_GROUP":
                self.rules.broken("G4", f"{client.group} never had members: {failed}")
            if failed.name not in NOTHING_DONE:
                raise
            self.errors[failed.name] += 1

    async def _look(
        self, client: FilingClient, held: dict[int, int], since: Moment, until: Moment
    ) -> bool:
        """G4: compares an answer; False where there was none."""
        try:
            where = await client.coordinator(COORDINATOR, client.group)
            leader = coordinator_of(self.rules, GROUPS, client.group)
            asked_s = self.rules.now()
            answer = await client.committed(where)
        except Failed as failed:
            self.errors[failed.name] += 1
            client.lose(COORDINATOR, client.group)
            return False
        self.count["filing: answers"] += 1
        if answer == held:
            return True
        if where[0] != leader and former_leads(self.rules, GROUPS, client.group, where[0], asked_s):
            return True  # a replaced broker that does not know it answers with old knowledge
        if not lost_between(self.rules, GROUPS, client.group, since, until):
            self.rules.broken("G4", f"{client.group} has {answer}, and was given {held}")
        return True

    # -- the topic ------------------------------------------------------------------------------

    async def govern(self, client: FilingClient) -> None:
        """Replaces the topic's configuration and moves its replicas, until cancelled."""
        value = int(DEFAULTS[SIZE])
        while True:
            await client.pause(0.5, 2.0)
            if self.resting:
                await trio.sleep_forever()
            address = client.random.choice(client.brokers())
            if client.random.random() < 0.5:
                await self._move(client, address)
                continue
            value += 1
            wanted = client.random.choice(({SIZE: str(value)}, {TIME: str(value)}, _UNCLEAN))
            self.uncertain.append(DEFAULTS | wanted)
            try:
                await client.replace_config(address, wanted)
            except Failed as failed:
                self.errors[failed.name] += 1
                if failed.name not in UNKNOWN_OUTCOME:
                    self.uncertain.pop()
            else:
                self.acked = self.uncertain.pop()
                self.count["filing: configurations replaced"] += 1

    async def _move(self, client: FilingClient, address: tuple[str, int]) -> None:
        try:
            if await client.move_between_directories(address):
                self.count["filing: replicas moved"] += 1
        except Failed as failed:
            self.errors[failed.name] += 1

    # -- the verdict ----------------------------------------------------------------------------

    async def judge(self, client: FilingClient) -> None:
        for name, held, since, until in self.put:
            client.group = name
            deadline = trio.current_time() + JUDGE_S
            while not await self._look(client, held, since, until):
                if trio.current_time() > deadline:
                    self.rules.broken("L1", f"the offsets of {name} cannot be read")
                    return
                await client.pause()
        for address in client.brokers():
            try:
                found = await client.config(address)
            except Failed as failed:
                self.errors[failed.name] += 1
                continue
            if found != self.acked and found not in self.uncertain:
                self.rules.broken(
                    "L2", f"{TOPIC}: {address[0]} has {found}; {self.acked} was acknowledged last"
                )
