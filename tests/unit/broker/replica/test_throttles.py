"""Replication throttles: the replicas that they hold back, and the rate; a member of the ISR is
never held back."""

from __future__ import annotations

from pathlib import Path

import trio

from highwater.base.event_loop import monotonic_ms
from highwater.broker.replica.fetcher import ReplicaFetcher
from highwater.broker.replica.partition import LeaderAndIsr
from highwater.broker.replica.throttles import (
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
    ReplicationQuota,
    ReplicationThrottles,
)
from highwater.kafka.config import LONG_MAX, Config
from highwater.kafka.types import ControllerEpoch, LeaderEpoch, TopicPartition, ZkVersion
from tests.unit.broker.replica.test_fetcher import FOLLOWER, LEADER, hosted, replica_manager, sent

T0, T1, OTHER = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("other", 0)


def test_the_list_names_this_brokers_partitions() -> None:
    quota = ReplicationQuota(11, 1)
    quota.mark("t", "0:1,1:2", 1)
    assert [quota.is_throttled(tp) for tp in (T0, T1, OTHER)] == [True, False, False]
    quota.mark("t", "*", 1)
    assert [quota.is_throttled(tp) for tp in (T0, T1, OTHER)] == [True, True, False]
    quota.mark("t", "nonsense,0", 1)
    assert not quota.is_throttled(T0)
    quota.mark("t", "*", 1)
    quota.mark("t", "", 1)
    assert not quota.is_throttled(T0)


def test_a_rate_is_held_over_the_windows() -> None:
    quota = ReplicationQuota(11, 1)
    quota.mark("t", "*", 1)
    quota.record(1_000_000, 0)
    assert not quota.holds_back(T0, 10), "no rate is set"
    quota.bound = 100_000
    assert quota.holds_back(T0, 10)
    assert not quota.holds_back(OTHER, 10)
    assert quota.holds_back(T0, 9_900)
    assert not quota.holds_back(T0, 10_000), "a million bytes in ten seconds"


def sent_in(quota: ReplicationQuota, seconds: int, chunk: int) -> int:
    """The chunks that pass when one is offered every tenth of a second."""
    total = 0
    for now_ms in range(0, seconds * 1000, 100):
        if not quota.exceeded(now_ms):
            quota.record(chunk, now_ms)
            total += chunk
    return total


def test_what_passes_is_the_rate_within_a_chunk() -> None:
    quota = ReplicationQuota(11, 1)
    quota.bound = 50_000
    assert 49_000 * 60 <= sent_in(quota, 60, 10_000) <= 51_000 * 60 + 10_000


def test_the_directions_have_lists_and_rates_of_their_own() -> None:
    throttles = ReplicationThrottles(Config(broker_id=1))
    throttles.topic_configured("t", {LEADER_REPLICAS: "0:1", FOLLOWER_REPLICAS: "1:1"})
    throttles.bound({LEADER_RATE: 5, FOLLOWER_RATE: 7})
    assert [throttles.leader.is_throttled(tp) for tp in (T0, T1)] == [True, False]
    assert [throttles.follower.is_throttled(tp) for tp in (T0, T1)] == [False, True]
    assert (throttles.leader.bound, throttles.follower.bound) == (5, 7)
    throttles.bound({})
    assert (throttles.leader.bound, throttles.log_dirs.bound) == (LONG_MAX, LONG_MAX)


async def test_a_leader_holds_back_only_who_is_not_in_sync(tmp_path: Path) -> None:
    manager = await replica_manager(tmp_path)
    partition = manager._host(T0, is_new=True)
    partition.make_leader(
        LeaderAndIsr(FOLLOWER, LeaderEpoch(0), ControllerEpoch(1), (1, 2), ZkVersion(0), (1, 2, 3)),
        0,
    )
    manager.throttles.topic_configured("t", {LEADER_REPLICAS: "*"})
    manager.throttles.bound({LEADER_RATE: 1})
    assert not manager.held_back(T0, 3), "nothing was sent yet"
    manager.throttles.leader.record(100, monotonic_ms())
    assert manager.held_back(T0, 3)
    assert not manager.held_back(T0, 2), "a member of the ISR"
    manager.topic_configured("t", {})
    assert not manager.held_back(T0, 3), "no list, no throttle"


async def test_a_log_is_configured_before_anybody_tells_of_its_partition(tmp_path: Path) -> None:
    manager = await replica_manager(tmp_path)
    logs = [manager.logs.get_or_create(tp, manager.logs.default_config) for tp in (T0, T1)]
    other = manager.logs.get_or_create(OTHER, manager.logs.default_config)
    manager.topic_configured("t", {"retention.ms": "7"})
    assert [log.config.retention_ms for log in (*logs, other)] == [7, 7, 604_800_000]


async def test_a_follower_leaves_out_what_is_over_the_rate_until_it_is_in_sync(
    tmp_path: Path,
) -> None:
    manager = await replica_manager(tmp_path)
    manager.throttles.topic_configured("t", {FOLLOWER_REPLICAS: "0:1"})
    manager.throttles.bound({FOLLOWER_RATE: 10})
    fetcher = ReplicaFetcher(manager, int(LEADER), 0, ("nowhere", 1))
    for tp in (T0, T1):
        fetcher.add(hosted(manager, tp), ("nowhere", 1))

    async def asked() -> list[TopicPartition]:
        now = trio.current_time()
        for tp, state in fetcher.states.items():
            state.ready_at = 0
            fetcher.look_at(tp)
        changes = await fetcher._changes(now)
        waiting = {tp for tp, asked in changes.items() if asked is None}
        assert waiting == fetcher._due.keys()
        assert all(fetcher.states[tp].ready_at > now for tp in waiting)
        return sorted(changes.keys() - waiting)

    assert await asked() == [T0, T1]
    behind = sent(T0, 0, 3)._replace(high_watermark=9)
    fetcher._append(T0, fetcher.states[T0], behind)
    fetcher._append(T1, fetcher.states[T1], sent(T1, 0, 3)._replace(high_watermark=9))
    assert manager.throttles.follower.bytes_per_second(monotonic_ms()) > 10
    assert await asked() == [T1], "only the one in the list waits"
    fetcher._append(T0, fetcher.states[T0], sent(T0, 3, 6)._replace(high_watermark=9))
    assert await asked() == [T0, T1], "it has all below the HW"


async def test_a_replica_in_sync_is_not_held_back_by_another_number_of_fetchers(
    tmp_path: Path,
) -> None:
    manager = await replica_manager(tmp_path)
    hosted(manager, T0)
    manager.fetchers.follow({T0: ("nowhere", 1)})
    state = manager.fetchers._owner[T0].states[T0]
    assert state.in_sync is manager.partitions[T0].in_isr
    for in_sync in (True, False):
        state.in_sync = in_sync
        manager.fetchers.resize()
        again = manager.fetchers._owner[T0].states[T0]
        assert again is not state
        assert again.in_sync is in_sync
        state = again
