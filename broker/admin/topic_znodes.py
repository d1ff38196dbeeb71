"""Topics in ZooKeeper: creating them, adding partitions, marking them for deletion.

A topic exists from the moment that /brokers/topics/T holds its assignment.  Its configuration is
written before that, so that a broker that learns of the topic finds it.  Everything else (leaders,
directories, the deletion) is the work of the controller, which watches these znodes.  The
handler then waits until the metadata cache shows the outcome (`topic_waits`).

A connection lost in the middle leaves the outcome unknown, and the answer says so.

Source: kafka.zk.AdminZkClient, kafka.server.ZkAdminManager.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from highwater.broker.admin.assignment import (
    Assignment,
    assign_replicas,
    check_assignment,
    rack_alternated,
)
from highwater.broker.settings.zookeeper_errors import zookeeper_errors
from highwater.kafka import znodes
from highwater.kafka.config.topic_values import check_overrides
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.replica_assignment import ReplicaAssignment
from highwater.kafka.topic_names import (
    GROUP_METADATA_TOPIC,
    SHARE_GROUP_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
    check_collision,
    check_name,
    is_valid_name,
)
from highwater.kafka.types import BrokerId
from highwater.kafka.znodes import TopicState
from highwater.world.api import (
    BadVersion,
    Create,
    NodeExists,
    NoNode,
    SetData,
    ZkOp,
    ZooKeeper,
)

if TYPE_CHECKING:
    from highwater.broker.services import Services
    from highwater.kafka.config import Config

DEFAULT = -1
Charge = Callable[[int], None]
"""Is given the number of partitions about to be created; may raise ApiError (a quota)."""


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic as a client asks for it; -1 means the default, and an assignment excludes both."""

    name: str
    partitions: int = DEFAULT
    replication_factor: int = DEFAULT
    assignment: Mapping[int, Sequence[int]] = field(default_factory=dict)
    configs: Mapping[str, str | None] = field(default_factory=dict)


def racks(services: Services) -> dict[int, str | None]:
    """The live brokers and their racks."""
    return {int(b.id): b.rack for b in services.metadata.brokers().values()}


def plan(services: Services, topic: NewTopic) -> tuple[Assignment, dict[str, str]]:
    """The assignment and the overrides of a new topic; raises ApiError.  Reads memory alone."""
    if services.metadata.has_topic(topic.name):
        detail = f"topic {topic.name!r} already exists"
        raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, detail)
    overrides: dict[str, str] = {}
    for name, value in topic.configs.items():
        if value is None:
            raise ApiError(ErrorCode.INVALID_CONFIG, f"{name} has no value (null)")
        overrides[name] = value
    if topic.assignment:
        if topic.partitions != DEFAULT or topic.replication_factor != DEFAULT:
            detail = "numbers of partitions and replicas cannot be given beside an assignment"
            raise ApiError(ErrorCode.INVALID_REQUEST, detail)
        return {p: tuple(r) for p, r in sorted(topic.assignment.items())}, overrides
    config = services.config
    count = config.num_partitions if topic.partitions == DEFAULT else topic.partitions
    factor = topic.replication_factor
    if factor == DEFAULT:
        factor = config.default_replication_factor
    return assign_replicas(racks(services), count, factor, services.world.random), overrides


async def check_new(
    zk: ZooKeeper, config: Config, name: str, assignment: Assignment, overrides: Mapping[str, str]
) -> None:
    """Raises ApiError for a topic that cannot be created."""
    check_name(name)
    if await zk.exists(znodes.delete_topic_path(name)) is not None:
        detail = f"topic {name!r} is being deleted"
        raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, detail)
    if await zk.exists(znodes.topic_path(name)) is not None:
        raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name!r} already exists")
    if "." in name or "_" in name:
        check_collision(name, await zk.children(znodes.TOPICS))
    check_assignment(assignment)
    check_overrides(config, overrides)


def free_of_charge(partitions: int) -> None:
    """Charges nothing, for partitions that no quota covers."""


async def create(
    services: Services,
    topic: NewTopic,
    *,
    validate_only: bool = False,
    charge: Charge = free_of_charge,
) -> tuple[Assignment, dict[str, str]]:
    """Creates a topic; raises ApiError.  The controller then elects its leaders."""
    assignment, overrides = plan(services, topic)
    with zookeeper_errors():
        zk = services.zk
        await check_new(zk, services.config, topic.name, assignment, overrides)
        charge(len(assignment))
        if not validate_only:
            await write(zk, topic.name, assignment, overrides)
    return assignment, overrides


async def write(
    zk: ZooKeeper, name: str, assignment: Assignment, overrides: Mapping[str, str]
) -> None:
    """Writes configuration and assignment in one transaction: of two clients that make a topic at
    once, with one of them by its mere name (auto.create.topics.enable), each would otherwise give
    its configuration to the other's topic, as in Kafka.
    """
    path, data = znodes.config_path("topics", name), znodes.encode_config(overrides)
    topic = Create(znodes.topic_path(name), znodes.encode_topic(_state(assignment)))
    config: ZkOp = Create(path, data)
    while True:
        try:
            await zk.multi([config, topic])
        except NodeExists as e:
            if e.path == topic.path:
                detail = f"topic {name!r} already exists"
                raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, detail) from None
            config = SetData(path, data)  # of a topic of that name that is gone, or was never whole
        except NoNode as e:
            if e.path != path:
                raise
            config = Create(path, data)
        else:
            return


def _state(assignment: Assignment) -> TopicState:
    return TopicState(
        {
            p: ReplicaAssignment(tuple(BrokerId(r) for r in replicas))
            for p, replicas in assignment.items()
        }
    )


async def auto_create(services: Services, name: str) -> ErrorCode:
    """Creates a topic that a Metadata request named (auto.create.topics.enable); returns its error.

    Any broker does this.  Racks are ignored here if only some of the brokers have one.
    """
    try:
        topic = _internal_topic(services, name) or NewTopic(name)
        if topic.replication_factor > len(services.metadata.brokers()):
            return ErrorCode.INVALID_REPLICATION_FACTOR
        assignment, overrides = _plan_automatic(services, topic)
        with zookeeper_errors():
            zk = services.zk
            await check_new(zk, services.config, name, assignment, overrides)
            await write(zk, name, assignment, overrides)
    except ApiError as e:
        if e.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            return e.code
    return ErrorCode.LEADER_NOT_AVAILABLE


def _plan_automatic(services: Services, topic: NewTopic) -> tuple[Assignment, dict[str, str]]:
    config, known = services.config, racks(services)
    if any(rack is None for rack in known.values()):
        known = dict.fromkeys(known)
    count = config.num_partitions if topic.partitions == DEFAULT else topic.partitions
    factor = topic.replication_factor
    if factor == DEFAULT:
        factor = config.default_replication_factor
    assignment = assign_replicas(known, count, factor, services.world.random)
    return assignment, {k: v for k, v in topic.configs.items() if v is not None}


def _internal_topic(services: Services, name: str) -> NewTopic | None:
    config = services.config
    if name == GROUP_METADATA_TOPIC:
        return NewTopic(
            name,
            config.offsets_topic_num_partitions,
            config.offsets_topic_replication_factor,
            configs={
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(config.offsets_topic_segment_bytes),
            },
        )
    if name == TRANSACTION_STATE_TOPIC:
        return NewTopic(
            name,
            config.transaction_state_log_num_partitions,
            config.transaction_state_log_replication_factor,
            configs={
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": str(config.transaction_state_log_min_isr),
                "segment.bytes": str(config.transaction_state_log_segment_bytes),
                "unclean.leader.election.enable": "false",
            },
        )
    if name == SHARE_GROUP_STATE_TOPIC:
        return NewTopic(
            name,
            config.share_coordinator_state_topic_num_partitions,
            config.share_coordinator_state_topic_replication_factor,
            configs={
                "cleanup.policy": "delete",
                "compression.type": "producer",
                "min.insync.replicas": str(config.share_coordinator_state_topic_min_isr),
                "retention.ms": "-1",
                "segment.bytes": str(config.share_coordinator_state_topic_segment_bytes),
            },
        )
    return None


async def delete(services: Services, name: str) -> None:
    """Marks a topic for deletion; raises ApiError.  A topic already marked is no error."""
    with zookeeper_errors():
        zk = services.zk
        if await zk.exists(znodes.topic_path(name)) is None:
            detail = f"topic {name!r} does not exist"
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, detail)
        try:
            await zk.create(znodes.delete_topic_path(name))
        except NodeExists:
            return


async def add_partitions(
    services: Services,
    name: str,
    count: int,
    wanted: Sequence[Sequence[int]] | None,
    *,
    validate_only: bool = False,
    charge: Charge = free_of_charge,
) -> list[int]:
    """Grows a topic to `count` partitions; returns the ids of all of them.  Raises ApiError.

    The write names the version that was read, so that two clients that grow a topic at once cannot
    undo each other.
    """
    if not is_valid_name(name):  # nor is it asked for: it could be another znode's path
        detail = f"topic {name!r} does not exist"
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, detail)
    with zookeeper_errors():
        zk = services.zk
        if await zk.exists(znodes.delete_topic_path(name)) is not None:
            detail = f"topic {name!r} is being deleted"
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, detail)
        while True:
            try:
                data, stat = await zk.get(znodes.topic_path(name))
            except NoNode:
                detail = f"topic {name!r} does not exist"
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, detail) from None
            state = znodes.decode_topic(name, data)
            added = plan_partitions(services, name, state, count, wanted)
            partitions = {
                **state.partitions,
                **{p: ReplicaAssignment(tuple(BrokerId(i) for i in r)) for p, r in added.items()},
            }
            charge(len(added))
            charge = free_of_charge  # once, however often the write is tried
            if validate_only:
                return sorted(partitions)
            encoded = znodes.encode_topic(TopicState(partitions, state.topic_id))
            try:
                await zk.set(znodes.topic_path(name), encoded, stat.version)
            except BadVersion:
                continue
            return sorted(partitions)


def plan_partitions(
    services: Services,
    name: str,
    state: TopicState,
    count: int,
    wanted: Sequence[Sequence[int]] | None,
) -> Assignment:
    """The assignment of the partitions to be added; raises ApiError."""
    existing = len(state.partitions)
    if any(a.is_being_reassigned for a in state.partitions.values()):
        detail = f"partitions of topic {name!r} are being reassigned"
        raise ApiError(ErrorCode.REASSIGNMENT_IN_PROGRESS, detail)
    if count <= existing:
        detail = f"topic {name!r} has {existing} partitions; {count} would not be more"
        raise ApiError(ErrorCode.INVALID_PARTITIONS, detail)
    first = state.partitions.get(0)
    if first is None:
        detail = f"topic {name!r} has no partition 0 in ZooKeeper"
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, detail)
    factor, known = len(first.replicas), racks(services)
    if wanted is not None:
        return _check_wanted(wanted, existing, count - existing, factor, known)
    ring = rack_alternated(known)
    by_id = sorted(known)
    start = next((i for i, b in enumerate(by_id) if b >= first.replicas[0]), 0)
    return assign_replicas(
        known,
        count - existing,
        factor,
        services.world.random,
        start_index=start % max(len(ring), 1),
        first_partition=existing,
    )


def _check_wanted(
    wanted: Sequence[Sequence[int]],
    existing: int,
    added: int,
    factor: int,
    known: Mapping[int, object],
) -> Assignment:
    unknown = sorted({b for replicas in wanted for b in replicas} - set(known))
    if unknown:
        detail = f"there are no brokers {unknown}; alive are {sorted(known)}"
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, detail)
    if len(wanted) != added:
        detail = f"{added} partitions are added, but {len(wanted)} assignments were given"
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, detail)
    for replicas in wanted:
        if len(replicas) != factor or len(dict.fromkeys(replicas)) != factor:
            detail = f"{list(replicas)}: the topic has {factor} different replicas a partition"
            raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, detail)
    return {existing + i: tuple(replicas) for i, replicas in enumerate(wanted)}
