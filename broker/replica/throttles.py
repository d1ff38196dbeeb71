"""Replication throttles (KIP-73): limits on the bytes a second that a reassignment may use.

A throttle has two parts.  A topic lists its throttled replicas (leader.replication.throttled.
replicas, follower.…; `*` or partition:broker pairs), and a broker has a rate for them
(leader.replication.throttled.rate, follower.…; set at run time, no limit otherwise).  The leader
counts the bytes that it sends of the partitions in its list, the follower those that it receives; a
broker above the rate leaves those partitions out until the average has come down again.

A throttle holds back only a replica that catches up, never a member of the ISR: it does not delay
records for which producers wait, and cannot shrink an ISR.  The leader checks the ISR, the follower
its own lag behind the HW.  All moves between log directories of one broker (KIP-113) share a rate
of the same kind (replica.alter.log.dirs.io.max.bytes.per.second).

Pure: the time comes in as a value.  Source: kafka.server.ReplicationQuotaManager.
"""

from __future__ import annotations

from collections.abc import Mapping

from highwater.broker.quota.rates import SampledRate
from highwater.kafka.config import LONG_MAX, Config
from highwater.kafka.types import TopicPartition
from highwater.kafka.znode_fields import is_id

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
LOG_DIRS_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
RATES = (LEADER_RATE, FOLLOWER_RATE, LOG_DIRS_RATE)
LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"
EVERY = "*"


class _SimpleRate(SampledRate):
    """A rate over the measured time: a first burst counts in full."""

    __slots__ = ()

    def span_ms(self, now_ms: int) -> int:
        self._forget(now_ms)
        passed = now_ms - self._starts[0] if self._starts else 0
        return max(passed, self._window_ms)


class ReplicationQuota:
    """The throttle of one direction.  Without a bound it only counts, and holds nothing back."""

    def __init__(self, samples: int, window_s: int) -> None:
        self.bound = LONG_MAX
        self._rate = _SimpleRate(samples, window_s * 1000)
        self._throttled: dict[str, frozenset[int] | None] = {}
        self.in_use = False
        """Whether any topic lists throttled replicas of this broker."""

    def mark(self, topic: str, listed: str, broker_id: int) -> None:
        """`listed` is the topic's property; only its pairs with this broker count."""
        mine = frozenset(p for p, broker in _pairs(listed) if broker == broker_id)
        if listed.strip() == EVERY:
            self._throttled[topic] = None
        elif mine:
            self._throttled[topic] = mine
        else:
            self._throttled.pop(topic, None)
        self.in_use = bool(self._throttled)

    def is_throttled(self, tp: TopicPartition) -> bool:
        if tp.topic not in self._throttled:
            return False
        partitions = self._throttled[tp.topic]
        return partitions is None or tp.partition in partitions

    def holds_back(self, tp: TopicPartition, now_ms: int) -> bool:
        """Whether this partition must wait (unless its replica is in sync)."""
        return self.is_throttled(tp) and self.exceeded(now_ms)

    def exceeded(self, now_ms: int) -> bool:
        return self._rate.rate(now_ms) > self.bound

    def record(self, size: int, now_ms: int) -> None:
        self._rate.record(size, now_ms)

    def bytes_per_second(self, now_ms: int) -> float:
        return self._rate.rate(now_ms)


def _pairs(listed: str) -> list[tuple[int, int]]:
    """The pairs of a list such as `0:1,1:2`; other items (by another broker) are left out."""
    found = []
    for item in listed.split(","):
        partition, _, broker = item.strip().partition(":")
        if is_id(partition) and is_id(broker):
            found.append((int(partition), int(broker)))
    return found


class ReplicationThrottles:
    """The throttles of one broker."""

    def __init__(self, config: Config) -> None:
        self._broker_id = config.broker_id
        window = (config.replication_quota_window_num, config.replication_quota_window_size_seconds)
        self.leader = ReplicationQuota(*window)
        self.follower = ReplicationQuota(*window)
        self.log_dirs = ReplicationQuota(
            config.alter_log_dirs_replication_quota_window_num,
            config.alter_log_dirs_replication_quota_window_size_seconds,
        )

    def topic_configured(self, topic: str, overrides: Mapping[str, str]) -> None:
        self.leader.mark(topic, overrides.get(LEADER_REPLICAS, ""), self._broker_id)
        self.follower.mark(topic, overrides.get(FOLLOWER_REPLICAS, ""), self._broker_id)

    def bound(self, rates: Mapping[str, int]) -> None:
        """Takes the broker's rates from its dynamic configuration."""
        for quota, name in (
            (self.leader, LEADER_RATE),
            (self.follower, FOLLOWER_RATE),
            (self.log_dirs, LOG_DIRS_RATE),
        ):
            quota.bound = rates.get(name, LONG_MAX)
