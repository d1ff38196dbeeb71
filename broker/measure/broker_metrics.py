"""Dashboards' numbers of a broker's replicas, logs, sessions and controller, read at the scrape.

Nothing is counted here: every number is looked up where it is kept, at the time of the scrape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import IntEnum
from functools import lru_cache, partial
from statistics import fmean
from typing import TYPE_CHECKING, Any

from highwater.base.event_loop import monotonic_ms
from highwater.base.metrics import Family, Labels, Sample, labels
from highwater.broker.replica.partition import Partition
from highwater.kafka.types import TopicPartition

if TYPE_CHECKING:
    from highwater.broker.coordinator.runtime import Coordinator
    from highwater.broker.services import Services

Counted = Callable[[Partition], int]

_CONTROLLER = (
    "ActiveControllerCount",
    "OfflinePartitionsCount",
    "PreferredReplicaImbalanceCount",
    "GlobalTopicCount",
    "GlobalPartitionCount",
    "TopicsToDeleteCount",
    "ReplicasToDeleteCount",
    "TopicsIneligibleToDeleteCount",
    "ReplicasIneligibleToDeleteCount",
    "ActiveBrokerCount",
    "EventQueueSize",
)
"""Zero in a broker that is not the controller."""


class BrokerState(IntEnum):
    """KafkaServer's BrokerState, by Kafka's numbers."""

    STARTING = 1
    RECOVERY = 2
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    SHUTTING_DOWN = 7


def register_broker_metrics(
    services: Services,
    controller_gauges: Callable[[], Mapping[str, int]],
    state: Callable[[], BrokerState],
) -> None:
    """Registers gauges by Kafka's names; `controller_gauges` gives KafkaController's, by name."""
    metrics, replicas = services.metrics, services.replicas
    metrics.gauge("kafka_server_kafkaserver_brokerstate", state)
    manager = "kafka_server_replicamanager_"

    def count(wanted: Callable[[Partition], bool]) -> Callable[[], float]:
        return lambda: sum(map(wanted, replicas.partitions.values()))

    gauges: dict[str, Callable[[], float]] = {
        "leadercount": count(lambda p: p.is_leader),
        "partitioncount": lambda: len(replicas.partitions),
        "underreplicatedpartitions": count(_under_replicated),
        "underminisrpartitioncount": count(lambda p: p.under_min_isr),
        "atminisrpartitioncount": count(_at_min_isr),
        "offlinereplicacount": count(lambda p: p.log is None),
        "reassigningpartitions": count(lambda p: p.is_leader and bool(p.adding or p.removing)),
        "isrshrinkspersec": lambda: replicas.isr_shrinks,
        "isrexpandspersec": lambda: replicas.isr_expands,
        "produceridcount": lambda: sum(
            len(p.log.producers) for p in replicas.partitions.values() if p.log is not None
        ),
    }
    for name, read in gauges.items():
        metrics.gauge(manager + name, read)
    sessions, cache = replicas.sessions, "kafka_server_fetchsessioncache_"
    metrics.gauge(f"{cache}numincrementalfetchsessions", sessions.__len__)
    metrics.gauge(f"{cache}numincrementalfetchpartitionscached", sessions.partitions)
    metrics.gauge(f"{cache}incrementalfetchsessionevictionspersec", lambda: sessions.evictions)
    metrics.gauge(
        "kafka_log_logmanager_offlinelogdirectorycount", lambda: len(services.logs.offline_dirs)
    )
    metrics.gauge("kafka_server_delayedfetchmetrics_expirespersec", lambda: _expired(services))
    metrics.collector(lambda: _topic_families(services))
    metrics.collector(lambda: services.quotas.families(monotonic_ms()))
    _register_partitions(services)
    _register_logs(services)
    metrics.collector(lambda: _controller_families(controller_gauges()))
    metrics.collector(lambda: _fetcher_families(services))
    coordinators: dict[str, Coordinator[Any, Any]] = {
        "group": services.groups,
        "transaction": services.transactions,
        "share": services.share_states,
    }
    for kind, coordinator in coordinators.items():
        name = f"kafka_server_{kind}_coordinator_metrics_partition_load_time_"
        metrics.gauge(f"{name}max", partial(_of_loads, coordinator.load_times, max))
        metrics.gauge(f"{name}avg", partial(_of_loads, coordinator.load_times, fmean))


def _topic_families(services: Services) -> Iterable[Family]:
    replicas = services.replicas
    replicas.topic_stats.forget_all_but({tp.topic for tp in replicas.partitions})
    return replicas.topic_stats.families()


def _expired(services: Services) -> Mapping[Labels, float]:
    stats = services.replicas.topic_stats
    return {
        labels(fetchertype="consumer"): stats.expired_consumers,
        labels(fetchertype="follower"): stats.expired_followers,
    }


def _under_replicated(partition: Partition) -> bool:
    return partition.is_leader and len(partition.isr.members) < len(partition.replicas)


def _at_min_isr(partition: Partition) -> bool:
    return partition.is_leader and len(partition.isr.members) == partition.effective_min_isr


def _register_partitions(services: Services) -> None:
    reads: dict[str, Counted] = {
        "underreplicated": _under_replicated,
        "underminisr": lambda p: p.under_min_isr,
        "atminisr": _at_min_isr,
        "insyncreplicascount": lambda p: len(p.isr.members) if p.is_leader else 0,
        "replicascount": lambda p: len(p.replicas) if p.is_leader else 0,
        "laststableoffsetlag": lambda p: max(0, p.high_watermark - p.last_stable_offset),
    }
    for name, read in reads.items():
        services.metrics.gauge(f"kafka_cluster_partition_{name}", _each(services, read))


def _register_logs(services: Services) -> None:
    reads: dict[str, Counted] = {
        "size": lambda p: p.require_log().size,
        "logstartoffset": lambda p: p.require_log().log_start_offset,
        "logendoffset": lambda p: p.require_log().log_end_offset,
        "numlogsegments": lambda p: len(p.require_log().segments),
    }
    for name, read in reads.items():
        services.metrics.gauge(f"kafka_log_log_{name}", _each(services, read))


@lru_cache(maxsize=16384)
def _labels_of(tp: TopicPartition) -> Labels:
    """Made once: ten families have a number for every partition."""
    return labels(topic=tp.topic, partition=tp.partition)


@lru_cache(maxsize=16384)
def _lag_labels(number: int, leader: int, tp: TopicPartition) -> Labels:
    client = f"ReplicaFetcherThread-{number}-{leader}"
    return labels(clientid=client, topic=tp.topic, partition=tp.partition)


def _each(services: Services, read: Counted) -> Callable[[], Iterator[tuple[Labels, float]]]:
    """A number for every partition with a log, read when it is written to the page."""

    def values() -> Iterator[tuple[Labels, float]]:
        partitions: Iterable[Partition] = tuple(services.replicas.partitions.values())
        return ((_labels_of(p.tp), read(p)) for p in partitions if p.log is not None)

    return values


def _controller_families(gauges: Mapping[str, int]) -> Iterable[Family]:
    for name in _CONTROLLER:
        kind = "controllereventmanager" if name == "EventQueueSize" else "kafkacontroller"
        full = f"kafka_controller_{kind}_{name.lower()}"
        yield Family(full, "gauge", "", [Sample("", (), gauges.get(name, 0))])
    stats = "kafka_controller_controllerstats_"
    for name, key in (
        ("uncleanleaderelectionspersec", "UncleanLeaderElections"),
        ("leaderelectionrateandtimems_count", "LeaderElections"),
    ):
        yield Family(stats + name, "counter", "", [Sample("", (), gauges.get(key, 0))])
    text = "Requests to brokers that are not answered yet"
    name = "kafka_controller_controllerchannelmanager_totalqueuesize"
    yield Family(name, "gauge", text, [Sample("", (), gauges.get("TotalQueueSize", 0))])


def _fetcher_families(services: Services) -> Iterable[Family]:
    fetchers = services.replicas.fetchers.at_work()
    now_ms = monotonic_ms()
    states = [(f, tp, state) for f in fetchers for tp, state in f.states.items()]
    lags = (Sample("", _lag_labels(f.number, f.leader, tp), state.lag) for f, tp, state in states)
    text = "Records that a follower's last fetch left below its leader's HW"
    yield Family("kafka_server_fetcherlagmetrics_consumerlag", "gauge", text, lags)
    manager, of_replica = "kafka_server_replicafetchermanager_", labels(clientid="Replica")
    most = max((state.lag for _, _, state in states), default=0)
    yield Family(f"{manager}maxlag", "gauge", text, [Sample("", of_replica, most)])
    text = "Fetchers that have died: an error of one never ends it"
    yield Family(f"{manager}deadthreadcount", "gauge", text, [Sample("", of_replica, 0)])
    least = min((fetcher.fetches.rate(now_ms) for fetcher in fetchers), default=0)
    text = "Fetches a second of the slowest fetcher"
    yield Family(f"{manager}minfetchrate", "gauge", text, [Sample("", of_replica, least)])


def _of_loads(times: Iterable[int], what: Callable[[list[int]], float]) -> float:
    """A figure in milliseconds over the latest partitions that a coordinator has loaded."""
    found = list(times)
    return what(found) if found else 0.0
