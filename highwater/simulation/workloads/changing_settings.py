"""Quotas, throttles and properties of brokers, changed while brokers fail.

An administrator sets them one after the other, at any broker: quotas of three client ids,
properties of one broker or of all, replication throttles of the topic to which everybody writes.
An answer may be lost, and the change may then be made late.

* L2: in the end each setting in ZooKeeper is the one acknowledged last, or a later one of unknown
  outcome, and every broker applies what ZooKeeper has (`rules/second_opinions`).
* A client's quota loses nothing: all other rules go on.
* L6: a throttle holds back no member of the ISR.  When all is healed the throttles are lifted, so
  that all replicas catch up; once they have, and each partition is led by its preferred replica,
  they are set to less than what is written.

Clients with a quota wait, so L6 does not ask how long.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Self

import trio

from highwater.broker.quota.quota_manager import FETCH, PRODUCE
from highwater.broker.replica.throttles import (
    EVERY,
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
)
from highwater.kafka import znodes
from highwater.kafka.wire.messages import (
    AlterClientQuotasRequest,
    IncrementalAlterConfigsRequest,
)
from highwater.simulation.workloads.part import Part, Shared, Works
from highwater.simulation.workloads.plain_client import (
    UNKNOWN_OUTCOME,
    Failed,
    SimClient,
    check_code,
)
from highwater.simulation.workloads.plain_topics import SAFE

if TYPE_CHECKING:
    from highwater.simulation.cluster import SimCluster

TOPIC, BROKER = 2, 4
QUOTED = ("exact", "plain", "consumer")
"""The client ids that get quotas."""
FETCHERS, CONNECTIONS = "num.replica.fetchers", "max.connections.per.ip"
LOW = "300"
"""Bytes a second, less than what is written."""
WAIT_S = 20.0


class Setting(NamedTuple):
    """One property of one entity; `path` is below /config."""

    path: str
    name: str

    @property
    def znode(self) -> str:
        return f"{znodes.CONFIG}/{self.path}"


class SettingsClient(SimClient):
    async def set(self, setting: Setting, value: str | None) -> None:
        """Sets a property, by any broker; None removes it."""
        kind, _, name = setting.path.partition("/")
        address = self.random.choice(self._bootstrap)
        if kind == "clients":
            await self._quota(address, name, setting.name, value)
            return
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource
        config = resource.AlterableConfig(
            name=setting.name, config_operation=0 if value is not None else 1, value=value
        )
        if kind == "brokers" and name != "<default>":
            address = (f"broker-{name}", address[1])  # only this broker can check its properties
        asked = resource(
            resource_type=TOPIC if kind == "topics" else BROKER,
            resource_name="" if name == "<default>" else name,
            configs=[config],
        )
        request = IncrementalAlterConfigsRequest(resources=[asked], validate_only=False)
        answer = await self._call(address, request, 0)
        check_code(answer.responses[0].error_code)

    async def _quota(
        self, address: tuple[str, int], client: str, key: str, value: str | None
    ) -> None:
        entry = AlterClientQuotasRequest.EntryData
        asked = entry(
            entity=[entry.EntityData(entity_type="client-id", entity_name=client)],
            ops=[entry.OpData(key=key, value=float(value or 0), remove=value is None)],
        )
        request = AlterClientQuotasRequest(entries=[asked], validate_only=False)
        answer = await self._call(address, request, 0)
        check_code(answer.entries[0].error_code)


@dataclass
class ChangingSettings(Part):
    """What was requested, and what is set in the end."""

    flag = "settings"
    help = "Quotas, throttles and brokers' properties that change."
    client_kind = SettingsClient

    cluster: SimCluster = field(kw_only=True)
    acked: dict[Setting, str | None] = field(default_factory=dict)
    uncertain: dict[Setting, set[str | None]] = field(default_factory=dict)
    """Values of requests with an unknown outcome, which may still be set."""

    @classmethod
    def of(cls, shared: Shared) -> Self:
        shared.cluster.rules.lateness.may_wait = frozenset(QUOTED)
        return cls(*shared.told, cluster=shared.cluster)

    def clients(self) -> Works:
        return {"settler": self.work}

    async def work(self, client: SettingsClient) -> None:
        """Changes one setting after the other; at rest only throttles."""
        changes: list[Callable[[SettingsClient], tuple[Setting, str | None]]]
        changes = [self._quota, self._property, self._rate, self._throttled]
        while not self.resting:
            await client.pause(0.3, 1.5)
            setting, value = client.random.choice(changes)(client)
            await self._set(client, setting, value)
        for setting in self._rates():
            await self._insist(client, setting, None)
        if await self._led_as_preferred():
            for setting in self._all_throttled():
                await self._insist(client, setting, EVERY)
            for setting in self._rates():
                await self._insist(client, setting, LOW)
            self.count["settings: throttled at rest"] += 1

    def _quota(self, client: SettingsClient) -> tuple[Setting, str | None]:
        name = client.random.choice(QUOTED)
        key = client.random.choice((PRODUCE, FETCH))
        value = client.random.choice(("1500", "5000", "50000", None))
        return Setting(f"clients/{name}", key), value

    def _property(self, client: SettingsClient) -> tuple[Setting, str | None]:
        random = client.random
        if random.random() < 0.5:
            return Setting("brokers/<default>", FETCHERS), random.choice(("1", "2", None))
        number = random.choice(sorted(self.cluster.nodes))
        return Setting(f"brokers/{number}", CONNECTIONS), random.choice(("1000", "2000", None))

    def _rates(self) -> list[Setting]:
        names = (LEADER_RATE, FOLLOWER_RATE)
        return [Setting(f"brokers/{n}", name) for n in sorted(self.cluster.nodes) for name in names]

    def _rate(self, client: SettingsClient) -> tuple[Setting, str | None]:
        value = client.random.choice(("2000", "20000", None))
        return client.random.choice(self._rates()), value

    def _all_throttled(self) -> list[Setting]:
        return [Setting(f"topics/{SAFE}", name) for name in (LEADER_REPLICAS, FOLLOWER_REPLICAS)]

    def _throttled(self, client: SettingsClient) -> tuple[Setting, str | None]:
        pairs = ",".join(f"0:{n}" for n in client.random.sample(sorted(self.cluster.nodes), 2))
        value = client.random.choice((EVERY, pairs, None))
        return client.random.choice(self._all_throttled()), value

    async def _set(self, client: SettingsClient, setting: Setting, value: str | None) -> bool:
        maybe = self.uncertain.setdefault(setting, set())
        maybe.add(value)
        try:
            await client.set(setting, value)
        except Failed as failed:
            self.errors[failed.name] += 1
            if failed.name not in UNKNOWN_OUTCOME:
                maybe.discard(value)
            return False
        maybe.discard(value)
        self.acked[setting] = value
        self.count["settings: changed"] += 1
        return True

    async def _insist(self, client: SettingsClient, setting: Setting, value: str | None) -> None:
        while not await self._set(client, setting, value):
            await client.pause()

    async def _led_as_preferred(self) -> bool:
        """Waits until no election is due: a new leader's followers are not in sync at first."""
        with trio.move_on_after(WAIT_S):
            while self.cluster.whole() is not None or not all(
                truth.state is not None and truth.state.leader == truth.assigned[0]
                for truth in self.rules.partitions.values()
            ):
                await trio.sleep(0.1)
            return True
        return False

    def sum_up(self) -> None:
        tree = self.cluster.simulation.zookeeper.ensemble.nodes
        for setting, value in self.acked.items():
            node = tree.get(setting.znode)
            there: Mapping[str, str] = znodes.decode_config(node.data) if node is not None else {}
            found, allowed = there.get(setting.name), {value, *self.uncertain[setting]}
            if not any(_same(found, one) for one in allowed):
                self.rules.broken(
                    "L2", f"/config/{setting.path} has {setting.name}={found}; {value} was "
                    "acknowledged last"
                )  # fmt: skip


def _same(found: str | None, wanted: str | None) -> bool:
    """A quota is stored as a number with a fraction."""
    if found is None or wanted is None:
        return found is wanted
    return found == wanted or (found.replace(".", "").isdigit() and float(found) == float(wanted))
