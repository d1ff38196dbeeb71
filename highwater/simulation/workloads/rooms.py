"""Further parts of a run, each with its flag, topics and clients of its own.

A part draws from its clients' own random streams, so a seed without the flag takes the course that
it always took.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from highwater.kafka.types import TopicPartition
from highwater.simulation.workloads.administrators import (
    GOVERNED,
    REBORN,
    AdminClient,
    Administrators,
)
from highwater.simulation.workloads.compacted import TOPIC as SMALL_SEGMENTS
from highwater.simulation.workloads.filing import Filing, FilingClient
from highwater.simulation.workloads.group_workload import PARTITIONS
from highwater.simulation.workloads.keyed_transactions import TOPIC as ACCOUNTS
from highwater.simulation.workloads.keyed_transactions import KeyedTransactions
from highwater.simulation.workloads.mixed_commits import MixedCommits
from highwater.simulation.workloads.plain_client import SimClient
from highwater.simulation.workloads.retained import TOPICS, AskingClient, RetainedTopics
from highwater.simulation.workloads.static_members import INSTANCES, Shift, StaticClient
from highwater.simulation.workloads.static_members import TOPIC as SHIFTED
from highwater.simulation.workloads.transactions_client import TxnClient

if TYPE_CHECKING:
    import trio

    from highwater.simulation.cluster import SimCluster

Place = Callable[["SimCluster", str], tuple[Any, ...]]
"""Makes a machine for a client; gives a client's arguments."""
C = TypeVar("C", bound=SimClient)


class Rooms:
    """The parts that this run has."""

    def __init__(
        self,
        cluster: SimCluster,
        place: Place,
        count: Counter[str],
        errors: Counter[str],
        pace: float,
        *,
        retained: bool,
        admin: bool,
        static_members: bool,
        keyed_transactions: bool,
        mixed_commits: bool,
    ) -> None:
        self._cluster = cluster
        self._place = place
        told = (cluster.rules, count, errors, pace)
        hosts = {broker: node.host for broker, node in cluster.nodes.items()}
        self._keyed = KeyedTransactions(*told, hosts) if keyed_transactions else None
        if keyed_transactions:
            cluster.rules.compacted |= {ACCOUNTS}
        self._mixed = MixedCommits(*told) if mixed_commits else None
        self._retained: RetainedTopics | None = None
        if retained:
            self._retained = RetainedTopics(*told, hosts)
            cluster.rules.log_begins = self._retained.log_begins
        self._admin = Administrators(*told, cluster.requested) if admin else None
        self._shift = Shift(*told[:3], pace / 4) if static_members else None
        self._filing = Filing(*told) if static_members else None
        if static_members:
            cluster.rules.unclean |= {SHIFTED}

    def topics(self, admin: SimClient, replicas: int) -> dict[str, Callable[[], Awaitable[None]]]:
        """The calls that make the topics, by name."""
        calls: dict[str, Callable[[], Awaitable[None]]] = {}
        if self._retained is not None:
            for name, config in TOPICS.items():
                calls[name] = partial(admin.create_topic, name, 1, replicas, config)
        if self._admin is not None:
            for name in (GOVERNED, REBORN):
                calls[name] = partial(admin.create_topic, name, 1, replicas)
        if self._keyed is not None:
            calls[ACCOUNTS] = partial(admin.create_topic, ACCOUNTS, 1, replicas, SMALL_SEGMENTS)
        if self._shift is not None:
            calls[SHIFTED] = partial(admin.create_topic, SHIFTED, PARTITIONS, replicas)
        return calls

    def tps(self) -> list[TopicPartition]:
        """The partitions at which faults may be aimed, too."""
        topics = [
            *(TOPICS if self._retained is not None else ()),
            *((GOVERNED, REBORN) if self._admin is not None else ()),
            *((ACCOUNTS,) if self._keyed is not None else ()),
            *((SHIFTED,) if self._shift is not None else ()),
        ]
        return [TopicPartition(topic, 0) for topic in topics]

    def _client(self, kind: type[C], name: str) -> C:
        return kind(*self._place(self._cluster, name))

    def _start(
        self,
        nursery: trio.Nursery,
        kind: type[C],
        works: Mapping[str, Callable[[C], Awaitable[None]]],
    ) -> None:
        for name, work in works.items():
            client = self._client(kind, name)
            nursery.start_soon(client.run, partial(work, client))

    def start(self, nursery: trio.Nursery) -> None:
        """Starts the clients."""
        if (made := self._retained) is not None:
            works = {"timed": made.produce, "timed-reader": made.consume, "asker": made.ask}
            self._start(nursery, AskingClient, works)
        if (admins := self._admin) is not None:
            replicas = min(3, len(self._cluster.nodes))
            rebirth = partial(admins.rebirth, replicas=replicas)
            people: dict[str, Callable[[AdminClient], Awaitable[None]]]
            people = {"governor": admins.govern, "inquirer": admins.ask, "midwife": rebirth}
            people["rival"] = partial(admins.compete, replicas=replicas)
            self._start(nursery, AdminClient, people)
        if (shift := self._shift) is not None:
            places = {**dict.fromkeys(INSTANCES, shift.member), "passer-by": shift.stranger}
            self._start(nursery, StaticClient, places)
        if (filing := self._filing) is not None:
            desks = {"clerk": filing.file, "registrar": filing.govern}
            self._start(nursery, FilingClient, desks)
        if (keyed := self._keyed) is not None:
            self._start(nursery, TxnClient, {"cashier": keyed.produce, "teller": keyed.consume})
        if self._mixed is not None:
            self._start(nursery, TxnClient, {"mixer": self._mixed.commit})

    def rest(self) -> None:
        """The faults are over: the cluster may become whole."""
        if self._admin is not None:
            self._admin.resting = True
        if self._filing is not None:
            self._filing.resting = True

    async def judge(self) -> None:
        """The last look, when all is whole."""
        if self._retained is not None:
            await self._retained.judge(self._client(AskingClient, "last-asker"))
        if self._admin is not None:
            await self._admin.judge(self._client(AdminClient, "auditor"))
        if self._shift is not None:
            await self._shift.judge(self._client(StaticClient, "last-asked"))
        if self._filing is not None:
            await self._filing.judge(self._client(FilingClient, "archivist"))
        if self._keyed is not None:
            await self._keyed.judge(self._client(TxnClient, "bookkeeper"))
        if self._mixed is not None:
            await self._mixed.judge(self._client(TxnClient, "last-look"))
