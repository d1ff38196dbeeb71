"""A broker's quotas: records clients' use, and says how long clients are muted.

Without any quota, nothing is measured (`active` is False): that check is the hot path's only cost.
request_percentage is a share of one thread's time: in Kafka a broker has (num.io.threads +
num.network.threads) * 100 percent in all; here everything runs in one thread, so it has 100.
Deviation: a Fetch throttled only for request_percentage is answered with its records, not empty.

Source: kafka.server.ClientQuotaManager, ClientRequestQuotaManager, ControllerMutationQuotaManager.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from highwater.base.metrics import Family, Sample, labels
from highwater.broker.quota.entities import DEFAULT, Entity, Quota, QuotaTable, bound_of
from highwater.broker.quota.rates import SampledRate, TokenBucket
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.sanitizer import sanitize

if TYPE_CHECKING:
    from highwater.kafka.config import Config

PRODUCE, FETCH = "producer_byte_rate", "consumer_byte_rate"
REQUEST, MUTATION = "request_percentage", "controller_mutation_rate"
CONNECTION_RATE = "connection_creation_rate"
KEYS = (PRODUCE, FETCH, REQUEST, MUTATION)
_MANY = 1000


class Sensor:
    """The use of a quota by one owner."""

    __slots__ = ("bucket", "rate", "throttled", "throttled_ms")

    def __init__(self, samples: int, window_ms: int) -> None:
        self.rate = SampledRate(samples, window_ms)
        self.bucket = TokenBucket(samples, window_ms)
        self.throttled = SampledRate(samples, window_ms)
        """How often the owner was throttled; with the next field, the average throttle time."""
        self.throttled_ms = SampledRate(samples, window_ms)


class RateQuota:
    """One kind of quota: its bounds, and each owner's use."""

    def __init__(self, name: str, samples: int, window_ms: int) -> None:
        self.name = name
        self.table = QuotaTable()
        self._samples = samples
        self._window_ms = window_ms
        self._sensors: dict[tuple[str, str], Sensor] = {}
        self._purge_at = _MANY

    def sensor(self, quota: Quota, now_ms: int) -> Sensor:
        key = (quota.user, quota.client)
        found = self._sensors.get(key)
        if found is None:
            if len(self._sensors) >= self._purge_at:
                self._purge(now_ms)
            found = self._sensors[key] = Sensor(self._samples, self._window_ms)
        return found

    def _purge(self, now_ms: int) -> None:
        """Drops owners that were idle for all windows: they would start at zero anyway."""
        for key in [key for key, s in self._sensors.items() if s.rate.idle(now_ms)]:
            del self._sensors[key]
        self._purge_at = max(_MANY, 2 * len(self._sensors))

    def record(self, user: str, client: str, amount: float, now_ms: int) -> int:
        """Records an amount; returns the milliseconds for which the client is muted."""
        quota = self.table.find(user, client)
        if quota is None:
            return 0
        sensor = self.sensor(quota, now_ms)
        sensor.rate.record(amount, now_ms)
        return sensor.rate.throttle_ms(quota.bound, now_ms)

    def take_back(self, user: str, client: str, amount: float, now_ms: int) -> None:
        quota = self.table.find(user, client)
        if quota is not None:
            self.sensor(quota, now_ms).rate.record(-amount, now_ms)

    def most(self, user: str, client: str) -> float | None:
        """The amount above which a client is throttled whatever came before; None: no limit."""
        quota = self.table.find(user, client)
        if quota is None:
            return None
        return quota.bound * max(self._samples - 1, 1) * self._window_ms / 1000

    def throttled(self, user: str, client: str, ms: int, now_ms: int) -> None:
        """Notes that this quota was the one that muted a client."""
        quota = self.table.find(user, client)
        if quota is not None:
            sensor = self.sensor(quota, now_ms)
            sensor.throttled.record(1, now_ms)
            sensor.throttled_ms.record(ms, now_ms)

    def families(self, kind: str, measure: str, now_ms: int) -> Iterable[Family]:
        """Kafka's series of one kind: each owner's use, and its average throttle time."""
        rates, throttles = [], []
        for (user, client), sensor in sorted(self._sensors.items()):
            key = labels(user=sanitize(user), client_id=client)
            rates.append(Sample("", key, sensor.rate.rate(now_ms)))
            times = sensor.throttled.rate(now_ms)
            throttled_ms = sensor.throttled_ms.rate(now_ms)
            throttles.append(Sample("", key, throttled_ms / times if times else 0.0))
        prefix = f"kafka_server_{kind}_"
        yield Family(prefix + measure, "gauge", f"{self.name} of clients with a quota", rates)
        text = "Average throttle time in milliseconds"
        yield Family(prefix + "throttle_time", "gauge", text, throttles)


class MutationQuota:
    """controller_mutation_rate for one request.

    If strict (for clients that know the error), it refuses requests while there is a debt, and
    throttles nobody otherwise; if permissive, it accepts everything and throttles.
    """

    def __init__(
        self, quotas: RateQuota, user: str, client: str, strict: bool, now_ms: int
    ) -> None:
        self.throttle_ms = 0
        self._quotas = quotas
        self._who = (user, client)
        self._quota = quotas.table.find(user, client)
        self._strict = strict
        self._now_ms = now_ms

    def charge(self, partitions: int) -> None:
        """Raises ApiError(THROTTLING_QUOTA_EXCEEDED) if the quota is strict and used up."""
        quota = self._quota
        if quota is None:
            return
        now_ms = self._now_ms
        sensor = self._quotas.sensor(quota, now_ms)
        if self._strict:
            self.throttle_ms = sensor.bucket.throttle_ms(quota.bound, now_ms)
            if self.throttle_ms:
                detail = "The throttling quota has been exceeded."
                raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, detail)
        sensor.rate.record(partitions, now_ms)
        sensor.bucket.take(partitions, quota.bound, now_ms)
        if not self._strict:
            self.throttle_ms = sensor.bucket.throttle_ms(quota.bound, now_ms)

    def told(self) -> None:
        """Notes that the client is muted."""
        self._quotas.throttled(*self._who, self.throttle_ms, self._now_ms)


class Quotas:
    """All of a broker's quotas on users and clients."""

    def __init__(self, config: Config) -> None:
        window = config.quota_window_size_seconds * 1000
        kinds = {
            name: RateQuota(name, config.quota_window_num, window)
            for name in (PRODUCE, FETCH, REQUEST)
        }
        kinds[MUTATION] = RateQuota(
            MUTATION,
            config.controller_quota_window_num,
            config.controller_quota_window_size_seconds * 1000,
        )
        self._kinds = kinds
        self._window_ms = window
        self.active = False
        self.produce, self.fetch = kinds[PRODUCE], kinds[FETCH]
        self.request, self.mutation = kinds[REQUEST], kinds[MUTATION]
        self.exempt_ns = 0
        """The time spent on brokers' requests, which have no quota."""

    def configured(self, entity: Entity, config: Mapping[str, str]) -> None:
        """Applies an entity's configuration.  Raises ValueError for a quota that is no number."""
        bounds = {name: bound_of(name, config) for name in KEYS}
        for name, bound in bounds.items():
            self._kinds[name].table.set(entity, bound)
        self.active = any(len(kind.table) for kind in self._kinds.values())

    def request_time(self, user: str, client: str, ns: int, now_ms: int) -> int:
        """Records the time of one request; the client is muted for a window at most."""
        percent = ns * 100 / 1e9
        return min(self.request.record(user, client, percent, now_ms), self._window_ms)

    def mutations(self, user: str, client: str, strict: bool, now_ms: int) -> MutationQuota:
        return MutationQuota(self.mutation, user, client, strict, now_ms)

    def exempt(self, ns: int) -> None:
        """Counts the time of a request that no quota limits."""
        self.exempt_ns += ns

    def families(self, now_ms: int) -> Iterable[Family]:
        yield from self.produce.families("produce", "byte_rate", now_ms)
        yield from self.fetch.families("fetch", "byte_rate", now_ms)
        yield from self.request.families("request", "request_time", now_ms)
        yield from self.mutation.families("controllermutation", "mutation_rate", now_ms)
        samples = [Sample("", (), self.exempt_ns / 1e7)]
        text = "Percent of a second spent on requests that no quota is for"
        yield Family("kafka_server_request_exempt_request_time_total", "counter", text, samples)


def user_of(principal: str) -> str:
    """The name in "User:NAME"."""
    return principal.partition(":")[2]


__all__ = ["DEFAULT", "Entity", "MutationQuota", "Quotas", "user_of"]
