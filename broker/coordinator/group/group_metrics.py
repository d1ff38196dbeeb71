"""Gauges of the groups and offsets of this broker, by Kafka's names (GroupMetadataManager, and
GroupCoordinatorMetrics for all kinds of groups)."""

from __future__ import annotations

from collections.abc import Callable

from highwater.base.event_loop import monotonic_ms
from highwater.base.metrics import Registry
from highwater.broker.coordinator.group.consumer.consumer_group import ConsumerGroup
from highwater.broker.coordinator.group.consumer.consumer_group import State as ConsumerState
from highwater.broker.coordinator.group.coordinator import GroupCoordinator
from highwater.broker.coordinator.group.group import Group, State
from highwater.broker.coordinator.group.rebalance_meter import RebalanceMeter
from highwater.broker.coordinator.group.share.share_group import State as ShareState

_PREFIX = "kafka_coordinator_group_groupmetadatamanager_"
_BY_PROTOCOL = "kafka_server_group_coordinator_metrics_"


def register_group_metrics(metrics: Registry, coordinator: GroupCoordinator) -> None:
    """Registers gauges, which are computed at the scrape."""

    def groups() -> list[Group]:
        return [g for shard in coordinator.shards.values() for g in shard.groups.values()]

    def in_state(state: State) -> Callable[[], float]:
        return lambda: sum(group.consumer is None and group.state is state for group in groups())

    metrics.gauge(_PREFIX + "numgroups", lambda: len(groups()))
    metrics.gauge(_PREFIX + "numoffsets", lambda: sum(len(group.offsets) for group in groups()))
    for state in State:
        metrics.gauge(f"{_PREFIX}numgroups{state.value.lower()}", in_state(state))
    _register_by_protocol(metrics, coordinator, groups)


def _register_by_protocol(
    metrics: Registry, coordinator: GroupCoordinator, groups: Callable[[], list[Group]]
) -> None:
    """Counts groups as clients are shown them: by what is committed."""

    def of(kind: type[ConsumerGroup | Group]) -> Callable[[], float]:
        return lambda: sum(isinstance(group.shown, kind) for group in groups())

    def consumers(state: ConsumerState) -> Callable[[], float]:
        def count() -> float:
            found = (group.committed for group in groups())
            return sum(group is not None and group.state is state for group in found)

        return count

    name = _BY_PROTOCOL + "group_count"
    metrics.gauge(name, of(Group), "Groups of a protocol.", protocol="classic")
    metrics.gauge(name, of(ConsumerGroup), "Groups of a protocol.", protocol="consumer")
    for state in ConsumerState:
        text = "Groups of the consumer protocol in a state."
        name = _BY_PROTOCOL + "consumer_group_count"
        metrics.gauge(name, consumers(state), text, state=state.value)
    _register_share_groups(metrics, coordinator)
    _register_rebalances(metrics, "consumer", coordinator.rebalances)
    _register_rebalances(metrics, "share", coordinator.share_rebalances)


def _register_share_groups(metrics: Registry, coordinator: GroupCoordinator) -> None:
    def in_state(state: ShareState | None) -> Callable[[], float]:
        def count() -> float:
            kept = (k for shard in coordinator.shards.values() for k in shard.share_groups.values())
            found = (k.committed for k in kept)
            return sum(g is not None and state in (None, g.state) for g in found)

        return count

    name = _BY_PROTOCOL + "group_count"
    metrics.gauge(name, in_state(None), "Groups of a protocol.", protocol="share")
    for state in ShareState:
        name, text = _BY_PROTOCOL + "share_group_count", "Share groups in a state."
        metrics.gauge(name, in_state(state), text, state=state.value)


def _register_rebalances(metrics: Registry, kind: str, meter: RebalanceMeter) -> None:
    name = f"{_BY_PROTOCOL}{kind}_group_rebalance"
    metrics.gauge(f"{name}_count", lambda: meter.count, f"New epochs of {kind} groups.")
    metrics.gauge(
        f"{name}_rate",
        lambda: meter.per_second(monotonic_ms()),
        f"New epochs of {kind} groups in a second, over the last minute.",
    )
