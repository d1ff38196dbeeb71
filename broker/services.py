"""The parts that the handlers of one broker share, and their way to the controller."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import trio

from highwater.broker.membership.agreement import Agreement
from highwater.broker.membership.controller_fence import ControllerFence
from highwater.broker.membership.marker_fence import MarkerFence
from highwater.broker.quota.quota_manager import Quotas
from highwater.broker.settings.config_changes import Changes, TopicConfigs
from highwater.broker.settings.dynamic_broker_config import DynamicBrokerConfig

if TYPE_CHECKING:
    from highwater.broker.coordinator.group.coordinator import GroupCoordinator
    from highwater.broker.coordinator.share.coordinator import ShareCoordinator
    from highwater.broker.coordinator.transaction.coordinator import TransactionCoordinator
    from highwater.broker.log.log_manager import LogManager
    from highwater.broker.log.upkeep import Upkeep
    from highwater.broker.membership.session_watch import SessionWatch
    from highwater.broker.metadata.metadata_cache import MetadataCache
    from highwater.broker.replica.replica_manager import ReplicaManager
    from highwater.broker.request.purgatory import CompletionSink, Purgatories
    from highwater.broker.request.request_metrics import Metrics
    from highwater.broker.share.persister import Persister
    from highwater.broker.share.share_partitions import SharePartitions
    from highwater.kafka.config import Config
    from highwater.kafka.errors import ErrorCode
    from highwater.kafka.replica_assignment import Reassignment
    from highwater.kafka.security.acls import Acls
    from highwater.kafka.types import BrokerEpoch, BrokerId, TopicPartition
    from highwater.world.api import World, ZooKeeper


class ControllerPort(Protocol):
    """The controller that may run inside this broker; every method raises ApiError(NOT_CONTROLLER)
    while it does not."""

    @property
    def active(self) -> bool: ...

    async def elect_leaders(
        self, partitions: list[TopicPartition] | None, unclean: bool
    ) -> dict[TopicPartition, tuple[ErrorCode, str | None]]: ...

    async def alter_partition_reassignments(
        self, targets: dict[TopicPartition, list[int] | None]
    ) -> dict[TopicPartition, tuple[ErrorCode, str | None]]: ...

    async def list_partition_reassignments(
        self, partitions: list[TopicPartition] | None
    ) -> dict[TopicPartition, Reassignment]: ...

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> list[TopicPartition]:
        """The partitions that the broker still leads; empty when it may stop."""

    def unclean_election_enabled(self, topic: str | None) -> None:
        """It became true for a topic (None: by default): elect the leaders that it alone prevented.
        Does nothing where this broker is not the controller."""


@dataclass(slots=True)
class Services:
    """One broker's parts.  `session`, its watch, `broker_epoch` and `candidate` change with it."""

    config: Config
    world: World
    broker_id: BrokerId
    cluster_id: str
    logs: LogManager
    replicas: ReplicaManager
    metadata: MetadataCache
    purgatories: Purgatories
    completions: CompletionSink
    metrics: Metrics
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    share_states: ShareCoordinator
    persister: Persister
    """The state of share-partitions, wherever it is kept."""
    share: SharePartitions
    broker_epoch: BrokerEpoch
    session: ZooKeeper | None = None
    session_watch: SessionWatch | None = None
    candidate: ControllerPort | None = None
    producer_ids: Any = None
    tokens: Any = None
    authorizer: Acls | None = None
    feeds: Sequence[Changes] = ()
    """What the session follows: announcements of configurations, access rules and tokens."""
    upkeep: Upkeep = field(init=False)
    agreement: Agreement = field(init=False)
    topic_configs: TopicConfigs = field(init=False)
    quotas: Quotas = field(init=False)
    dynamic: DynamicBrokerConfig = field(init=False)
    fence: ControllerFence = field(default_factory=ControllerFence)
    marker_fence: MarkerFence = field(default_factory=MarkerFence)
    metadata_lock: trio.Lock = field(default_factory=trio.Lock)
    """Held while an UpdateMetadata is applied, which takes several steps."""
    levels_changed: list[Callable[[], None]] = field(default_factory=list)
    """Called after the levels of loggers have changed."""

    def __post_init__(self) -> None:
        self.agreement = Agreement(self.config, self.world, self.metadata)
        self.topic_configs = TopicConfigs(self.replicas.topic_configured)
        self.quotas = Quotas(self.config)
        self.dynamic = DynamicBrokerConfig(self.config)
        self.groups.configs.session = lambda: self.session
        self.groups.persister = self.persister

    def followed(self) -> dict[str, int]:
        """By folder of announcements, the number of the last one that was applied; none while there
        is no session."""
        return {feed.folder: feed.followed for feed in self.feeds}

    @property
    def zk(self) -> ZooKeeper:
        """The live session; raises ApiError(REQUEST_TIMED_OUT) while ZooKeeper is away.

        A handler that waited for it would delay Produce and Fetch, which need no ZooKeeper.
        """
        away = self.session_watch is not None and not self.session_watch.connected
        if self.session is None or self.session.expired or away:
            from highwater.kafka.errors import ApiError, ErrorCode

            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "ZooKeeper cannot be reached just now")
        return self.session

    @property
    def is_controller(self) -> bool:
        """Whether the active controller runs in this broker."""
        return self.candidate is not None and self.candidate.active

    @property
    def controller(self) -> ControllerPort:
        """Raises ApiError(NOT_CONTROLLER) while no candidate runs (no ZooKeeper session)."""
        if self.candidate is None:
            from highwater.kafka.errors import ApiError, ErrorCode

            raise ApiError(ErrorCode.NOT_CONTROLLER)
        return self.candidate
