"""Compares what brokers have in memory at rest with witnesses other than the broker itself.

* The log start of a follower: its leader's.
* The first offset of a leader epoch: the end of its leader's log when it began to lead.
* The recovery point: what the disk keeps when it loses power.
* The entries of the offset and time indexes: the batches on the disk.
* The configuration in force (topics, brokers, quotas, throttles): ZooKeeper's tree.
* Checkpoint files: what the broker believes to have written there.
* The topic ids of logs and of Metadata: the topics' znodes.
* Answers to a client's Metadata: ZooKeeper's tree, too, and the machines that run.
* The partitions of a follower's fetch session, at the leader: the follower's own list of them.

None of these looks repairs what it finds: it loads no index, makes the broker read no znode, and
sends no request.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from highwater.broker.log import metadata_file
from highwater.broker.log.checkpoints import MalformedFileError, decode_offsets
from highwater.broker.log.index import OffsetIndex, TimeIndex
from highwater.broker.log.log_config import LogConfig
from highwater.broker.quota.entities import entity_of_path
from highwater.broker.quota.quota_manager import KEYS
from highwater.broker.replica.throttles import RATES, ReplicationThrottles
from highwater.kafka import znodes
from highwater.kafka.config.checks import parse_value
from highwater.kafka.config.property_table import DYNAMIC
from highwater.kafka.features import TOPIC_IDS
from highwater.kafka.wire.codec import decode_response
from highwater.world.sim.inode import Inode

if TYPE_CHECKING:
    from highwater.broker.log.segment import Segment
    from highwater.broker.server import Broker
    from highwater.kafka.types import TopicPartition
    from highwater.simulation.rules.agreed_log import PartitionTruth
    from highwater.simulation.rules.mirror import ReplicaMirror
    from highwater.world.sim.disk import SimDisk
    from highwater.world.sim.zookeeper_server import Znode

    Brokers = Mapping[int, Broker]
    Truths = Mapping[TopicPartition, PartitionTruth]
    Tree = Mapping[str, Znode]

METADATA, METADATA_VERSION = 3, 12
"""The API key, and the version that the simulation's clients use, so that answers cached for them
are seen."""


def disagreement(
    broker: Broker, disk: SimDisk, truths: Truths, tree: Tree, addresses: Mapping[int, object]
) -> Iterator[str]:
    """The differences between this broker and the witnesses; `addresses`: broker -> its machine's
    (host, port)."""
    yield from on_disk(broker, disk, truths)
    yield from _ids(broker, disk, tree)
    yield from _topics_configured(broker, tree)
    yield from _broker_configured(broker, tree)
    yield from _quotas_configured(broker, tree)
    yield from _answered(broker, truths, addresses)
    yield from _written(broker, disk)


def on_disk(broker: Broker, disk: SimDisk, truths: Truths) -> Iterator[str]:
    """The differences between what a broker knows of its logs and the disk or the leaders' epochs;
    for a broker at rest, or one that begins to serve."""
    for tp, log in broker.services.logs.logs.items():
        truth = truths.get(tp)
        replica = truth.replicas.get(broker.config.broker_id) if truth is not None else None
        if truth is None or replica is None:
            continue
        entries, begin = log.epochs.entries, log.log_start_offset
        for wrong in late_epochs(entries, begin, truth.began, exact=not truth.compacted):
            yield f"{wrong} ({tp})"
        for segment in log.segments:
            for wrong in misindexed(segment, replica.mirror, disk):
                yield f"{wrong} ({tp})"
            if (lacks := _unflushed(segment, replica.mirror, disk, log.recovery_point)) is not None:
                yield f"has the recovery point {log.recovery_point} of {tp}, and {lacks}"


def late_epochs(
    entries: list[tuple[int, int]], log_start: int, began: Mapping[int, int], *, exact: bool
) -> Iterator[str]:
    """Epochs of which a replica has another start than their leaders had.  If compaction has left
    holes, an epoch may begin with the hole before it, but not later than at its leader."""
    for epoch, start in entries:
        known = began.get(epoch)
        if known is None or start <= log_start:
            continue
        if start > known or (exact and start < known):
            yield f"lets epoch {epoch} begin at {start}, and its leader began at {known}"


def misindexed(segment: Segment, mirror: ReplicaMirror, disk: SimDisk) -> Iterator[str]:
    """Entries of a segment's indexes that contradict its batches."""
    held, base = mirror.in_segment(segment.file.path), segment.base_offset
    starts = accumulate((batch.size for batch in held), initial=0)
    ends = {at: batch.last for at, batch in zip(starts, held, strict=False)}
    private: Any = segment
    offsets = private._offset_index
    if offsets is None:
        offsets = OffsetIndex.decode(_file(disk, segment, ".index"), segment.size)
    for relative, position in zip(offsets.offsets, offsets.positions, strict=True):
        if ends.get(position) != base + relative:
            yield f"has offset {base + relative} at {position} in the index of {base}"
    times = private._time_index
    if times is None:
        times = TimeIndex.decode(_file(disk, segment, ".timeindex"))
    passed, newest = iter(held), -1
    batch = next(passed, None)
    for relative, timestamp in zip(times.offsets, times.timestamps, strict=True):
        while batch is not None and batch.last <= base + relative:
            newest, batch = max(newest, batch.max_timestamp), next(passed, None)
        if newest > timestamp:
            yield f"says that nothing up to {base + relative} is later than {timestamp}: {newest}"


def _unflushed(
    segment: Segment, mirror: ReplicaMirror, disk: SimDisk, recovery_point: int
) -> str | None:
    """A batch below the recovery point that a power loss would take, or None."""
    file, position = disk.find(segment.file.path), 0
    if not isinstance(file, Inode):
        return None
    for batch in mirror.in_segment(segment.file.path):
        position += batch.size
        if batch.last < recovery_point and position > file.synced:
            return f"{batch} was never flushed"
    return None


def _file(disk: SimDisk, segment: Segment, suffix: str) -> bytes:
    found = disk.find(segment.file.path.removesuffix(".log") + suffix)
    return bytes(found.data) if isinstance(found, Inode) else b""


def _config(tree: Tree, path: str) -> dict[str, str]:
    node = tree.get(f"{znodes.CONFIG}/{path}")
    return znodes.decode_config(node.data) if node is not None and node.data else {}


def _children(tree: Tree, path: str) -> list[str]:
    node = tree.get(f"{znodes.CONFIG}/{path}")
    return sorted(node.children) if node is not None else []


def _topics_configured(broker: Broker, tree: Tree) -> Iterator[str]:
    services, config = broker.services, broker.config
    defaults, throttles = LogConfig.of(config), ReplicationThrottles(config)
    for topic in _children(tree, "topics"):
        throttles.topic_configured(topic, _config(tree, f"topics/{topic}"))
    for mine, wanted in (
        (services.replicas.throttles.leader, throttles.leader),
        (services.replicas.throttles.follower, throttles.follower),
    ):
        known: Any = {t: p for t, p in vars(mine)["_throttled"].items() if _there(tree, t)}
        if known != vars(wanted)["_throttled"]:
            yield f"throttles {known}, and is to throttle {vars(wanted)['_throttled']}"
    for tp, partition in services.replicas.partitions.items():
        if partition.log is None or not _there(tree, tp.topic):
            continue
        overrides = _config(tree, f"topics/{tp.topic}")
        wanted_config = defaults.with_overrides(overrides)
        if partition.log.config != wanted_config:
            yield f"has another configuration of {tp} in force than {overrides}"
        least = int(overrides.get("min.insync.replicas", config.min_insync_replicas))
        if partition.min_insync_replicas != least:
            yield f"has min.insync.replicas={partition.min_insync_replicas} of {tp}, not {least}"


def _ids(broker: Broker, disk: SimDisk, tree: Tree) -> Iterator[str]:
    """Wrong topic ids in memory, in `partition.metadata`, and in answers to clients."""
    services = broker.services
    brokers = [node.data for path, node in tree.items() if path.startswith(f"{znodes.BROKER_IDS}/")]
    if not all(TOPIC_IDS.encode() in data for data in brokers):
        return
    for tp, partition in services.replicas.partitions.items():
        node, replica_log = tree.get(znodes.topic_path(tp.topic)), partition.log
        if node is None or replica_log is None:
            continue
        wanted = znodes.decode_topic(tp.topic, node.data).topic_id
        file = disk.find(f"{replica_log.dir}/{metadata_file.NAME}")
        try:
            stored = metadata_file.decode(bytes(file.data)) if isinstance(file, Inode) else None
        except ValueError:
            stored = None
        shown = services.metadata.topic_id(tp.topic)
        if wanted is None:
            yield f"hosts {tp}, whose topic has no id"
        elif (replica_log.topic_id, stored, shown) != (wanted, wanted, wanted):
            ids = [None if i is None else i.hex() for i in (replica_log.topic_id, stored, shown)]
            yield f"has the ids {ids} of {tp} (log, file, Metadata), and not {wanted.hex()}"


def _there(tree: Tree, topic: str) -> bool:
    return f"{znodes.TOPICS}/{topic}" in tree


def _broker_configured(broker: Broker, tree: Tree) -> Iterator[str]:
    services = broker.services
    wanted = _config(tree, "brokers/<default>") | _config(
        tree, f"brokers/{broker.config.broker_id}"
    )
    for name, text in wanted.items():
        row = DYNAMIC.get(name)
        if row is not None and getattr(broker.config, row.attribute) != parse_value(row, text):
            yield f"has {name}={getattr(broker.config, row.attribute)} in force, not {text}"
    rates = ReplicationThrottles(broker.config)
    rates.bound({name: int(wanted[name]) for name in RATES if name in wanted})
    for which in ("leader", "follower", "log_dirs"):
        bound, right = (getattr(of, which).bound for of in (services.replicas.throttles, rates))
        if bound != right:
            yield f"has a throttle of {bound} bytes a second ({which}), not of {right}"


def _quotas_configured(broker: Broker, tree: Tree) -> Iterator[str]:
    users = _children(tree, "users")
    paths = [f"{kind}/{name}" for kind in ("users", "clients") for name in _children(tree, kind)]
    paths += [
        f"users/{u}/clients/{c}" for u in users for c in _children(tree, f"users/{u}/clients")
    ]
    private: Any = broker.services.quotas
    for key in KEYS:
        wanted = {
            entity_of_path(path): float(config[key])
            for path in paths
            if key in (config := _config(tree, path))
        }
        table = private._kinds[key].table
        if table._bounds != wanted:
            yield f"has {key} of {table._bounds} in force, not of {wanted}"
        for owner, kept in table._found.items():
            if kept != (found := table._look_up(*owner)):
                yield f"has kept {key} of {kept} for {owner}, which is {found}"


def _written(broker: Broker, disk: SimDisk) -> Iterator[str]:
    """Checkpoint files that differ from what the broker believes to have written."""
    logs: Any = broker.services.logs
    for directory in logs._live():
        for name, offsets in directory.written.items():
            file = disk.find(f"{directory.path}/{name}")
            try:
                held = decode_offsets(bytes(file.data)) if isinstance(file, Inode) else {}
            except MalformedFileError:
                held = {}  # a power loss has torn the file, and the broker takes it for empty
            if held != offsets and name not in directory.planned:
                yield f"has written {offsets} to {directory.path}/{name}, which has {held}"


def _answered(broker: Broker, truths: Truths, addresses: Mapping[int, object]) -> Iterator[str]:
    """Mistakes in a broker's answer to Metadata, made from what it has cached."""
    listener = broker.config.parsed_listeners.bound[0].listener
    encoded = broker.services.metadata.answer(METADATA_VERSION, listener, None)
    answer = decode_response(METADATA, METADATA_VERSION, encoded.data)
    told = {found.node_id: (found.host, found.port) for found in answer.brokers}
    if told != addresses:
        yield f"answers that the brokers are {told}"
    found: dict[tuple[str, int], Any] = {
        (topic.name, one.partition_index): one
        for topic in answer.topics
        for one in topic.partitions
    }
    for tp, truth in truths.items():
        one, state = found.pop((tp.topic, tp.partition), None), truth.state
        if one is None or state is None:
            yield f"answers nothing of {tp}"
            continue
        known = (one.leader_id, one.leader_epoch, set(one.isr_nodes), one.replica_nodes)
        wanted = (state.leader, state.leader_epoch, set(state.isr), list(truth.assigned))
        if known != wanted or one.error_code or one.offline_replicas:
            yield f"answers {one} for {tp}, which is {state} on {truth.assigned}"
    for gone in found:
        yield f"answers that there is {gone}"


def partings(brokers: Brokers) -> Iterator[str]:
    """Differences between two brokers about the same thing: a follower's log start, and the
    partitions of a fetch session."""
    for number, broker in brokers.items():
        for tp, partition in broker.services.replicas.partitions.items():
            for follower_id in partition.followers if partition.is_leader else ():
                other = brokers.get(follower_id)
                mine, log = partition.log, other and other.services.logs.logs.get(tp)
                if mine and log and log.log_start_offset < mine.log_start_offset:
                    ends = f"{log.log_start_offset}, and its leader's at {mine.log_start_offset}"
                    yield f"the log of broker-{follower_id} for {tp} begins at {ends}"
        yield from _sessions(number, broker, brokers)


def _sessions(number: int, broker: Broker, brokers: Brokers) -> Iterator[str]:
    private: Any = broker.services.replicas.sessions
    for follower_id, other in brokers.items():
        fetchers: Any = other.services.replicas.fetchers.at_work()
        for fetcher in fetchers:
            session = private._sessions.get(fetcher._session._id)
            if fetcher.leader != number or session is None:
                continue  # an evicted session begins afresh
            asked = fetcher._session._asked
            known = {tp: fed.asked for tp, fed in session.partitions.items()}
            if known != asked:
                odd = sorted({*known.items()} ^ {*asked.items()})[0]
                yield f"broker-{number} and broker-{follower_id} differ in a fetch session: {odd}"
