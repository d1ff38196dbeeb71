"""A part of a run: its flag, its topics, its clients, and its judgement at the end.

A workload is a file with a `Part`, and a row of `highwater.simulation.part_list`.  Its clients draw
from random streams of their own, so a seed without the flag takes the course that it always took.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, TypeVar

from highwater.kafka.types import TopicPartition
from highwater.simulation.cluster import PORT
from highwater.simulation.workloads.plain_client import SimClient

if TYPE_CHECKING:
    from highwater.simulation.cluster import SimCluster
    from highwater.simulation.rules.cluster_rules import Rules
    from highwater.simulation.sim_history import History
    from highwater.world.sim import Host, Kernel

C = TypeVar("C", bound=SimClient)
Works = Mapping[str, Callable[[Any], Awaitable[None]]]
"""Name of a client -> the work that it does until it is cancelled."""


class Topic(NamedTuple):
    """How a topic is made."""

    name: str
    partitions: int = 1
    config: Mapping[str, str] | None = None
    aimed: int = 1
    """The number of its partitions at which faults may be aimed."""


@dataclass
class Shared:
    """What the parts of a run share."""

    cluster: SimCluster
    history: History
    pace: float

    @property
    def hosts(self) -> dict[int, Host]:
        return {broker: node.host for broker, node in self.cluster.nodes.items()}

    @property
    def told(self) -> tuple[Rules, Counter[str], Counter[str], float]:
        """The arguments with which most parts are made."""
        return self.cluster.rules, self.history.count, self.history.errors, self.pace

    def client(self, kind: type[C], name: str) -> C:
        """A client on a machine of its own."""
        simulation = self.cluster.simulation
        world = simulation.start(simulation.add_host(name))
        bootstrap = [(node.name, PORT) for node in self.cluster.nodes.values()]
        return kind(world, name, bootstrap, self.cluster.rules.answers)


@dataclass(eq=False)
class Part:
    """A workload overrides what it needs of this; the methods are in the order of their calls."""

    flag: ClassVar[str] = ""
    """The field of Options, and the flag of `highwater sim`."""
    help: ClassVar[str] = ""
    """What `highwater sim --help` says of the flag."""
    needs: ClassVar[tuple[str, ...]] = ()
    """The flags of other parts that it needs; a part without any flag is in every run."""
    topics: tuple[Topic, ...] = field(init=False, default=())
    maker: ClassVar[str] = "creator"
    """The name of the client that makes the topics."""
    coordinated: ClassVar[str] = ""
    """The internal topic whose leaders coordinate its clients; faults may be aimed at them."""
    client_kind: ClassVar[type[SimClient]] = SimClient
    last: ClassVar[str] = ""
    """The name of the client that has the last look."""

    rules: Rules
    count: Counter[str]
    errors: Counter[str]
    pace: float = 1.0
    resting: bool = field(init=False, default=False)
    """Whether the faults are over, so that the cluster may become whole."""

    def __post_init__(self) -> None:
        """Where a part is no dataclass of its own, its further fields begin here."""

    @classmethod
    def shape(cls, kernel: Kernel) -> dict[str, Any]:
        """The fields of the cluster's Shape that this part sets."""
        return {}

    @classmethod
    def of(cls, shared: Shared) -> Self:
        """The part of this run, before its brokers start."""
        return cls(*shared.told)

    def clients(self) -> Works:
        return {}

    def targets(self) -> list[TopicPartition]:
        """The partitions at which faults may be aimed."""
        return [TopicPartition(topic.name, p) for topic in self.topics for p in range(topic.aimed)]

    async def settle(self) -> bool:
        """Waits, in the whole cluster, until its clients have finished; False if they do not."""
        return True

    async def look(self, shared: Shared) -> None:
        """The last look, when the clients have ended."""
        if self.last:
            await self.judge(shared.client(self.client_kind, self.last))

    async def judge(self, client: Any) -> None:
        """Judges what the last look finds."""

    def sum_up(self) -> None:
        """Judges what all last looks have found."""

    def judge_by_sql(self) -> None:
        """Judges by the SQL of the checks."""

    def counted(self, shared: Shared) -> dict[str, int]:
        """Further operations, counted when the run has ended, however it ended."""
        return {}
