"""Gauges of the groups and offsets of this broker, by Kafka's names (GroupMetadataManager)."""

from __future__ import annotations

from collections.abc import Callable

from highwater.base.metrics import Registry
from highwater.broker.coordinator.group.coordinator import GroupCoordinator
from highwater.broker.coordinator.group.group import Group, State

_PREFIX = "kafka_coordinator_group_groupmetadatamanager_"


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
