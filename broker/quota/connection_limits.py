"""Limits the number of connections, and the rate of new ones.

With max.connections.per.ip (and its overrides by address), a connection too many is closed at once.
With max.connections, the acceptor waits until another connection closes, so clients wait in the
listen queue.  With max.connection.creation.rate, acceptors wait until the average over the last
second is below it.  The latter two can be set for the broker, and for a listener as
`listener.name.NAME.…` (KIP-402, KIP-612); a connection must keep to both limits.  If a broker has
several listeners, the inter-broker listener and the control plane are *protected*: the broker's own
two limits never make them wait, and they close the client that was idle for longest instead; their
own limits do hold.  With connection_creation_rate, a quota on an address (KIP-612), connections
that come too fast are accepted, kept open for a while, and closed.

Pure: the caller passes in the time.

Source: kafka.network.ConnectionQuotas.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from highwater.broker.quota.entities import DEFAULT
from highwater.broker.quota.rates import SampledRate
from highwater.kafka.config import INT_MAX
from highwater.kafka.config.connection_overrides import parse_overrides

_MANY_ADDRESSES = 1000
_HELD_MS = 1000
_NEVER_MS = 1000
"""How long to wait before looking at a rate of 0 again, which may be raised."""


class TooManyConnections(Exception):
    """Raised when an address has as many connections as it may have."""


class ListenerLimits(NamedTuple):
    """The limits of `listener.name.NAME.…`: connections, and new ones a second."""

    max_connections: int = INT_MAX
    creation_rate: int = INT_MAX


_UNLIMITED = ListenerLimits()


class _Credit:
    """How many new connections may come now: at most as many as come in a second."""

    def __init__(self, rate: int) -> None:
        self.rate = rate
        self._credit = float(rate)
        self._at_ms = 0

    def delay_ms(self, now_ms: int) -> int:
        """The time until a connection may come; 0 if one may come now (see `take`)."""
        if self.rate >= INT_MAX:
            return 0
        if self.rate <= 0:
            return _NEVER_MS
        passed, self._at_ms = now_ms - self._at_ms, now_ms
        self._credit = min(float(self.rate), self._credit + passed * self.rate / 1000)
        return 0 if self._credit >= 1 else int((1 - self._credit) * 1000 / self.rate) + 1

    def take(self) -> None:
        self._credit -= 1


class ConnectionLimits:
    def __init__(
        self,
        max_connections: int = INT_MAX,
        per_ip: int = INT_MAX,
        overrides: str = "",
        creation_rate: int = INT_MAX,
        windows: tuple[int, int] = (11, 1000),
        protected: Collection[str | None] = (),
    ) -> None:
        """`protected` are the listeners that the broker's own limits never make wait."""
        self.total = 0
        self._protected = protected
        self._by_ip: dict[str, int] = {}
        self._by_listener: dict[str, int] = {}
        self._listeners: Mapping[str, ListenerLimits] = {}
        self._credit = _Credit(creation_rate)
        self._credits: dict[str, _Credit] = {}
        self.configure(max_connections, per_ip, overrides, creation_rate)
        self._windows = windows
        self._ip_rates: dict[str, float] = {}
        self._created: dict[str, SampledRate] = {}

    def configure(
        self, max_connections: int, per_ip: int, overrides: str, creation_rate: int
    ) -> None:
        """Sets the broker's limits for new connections; open ones stay."""
        self.max_connections = max_connections
        self.per_ip = per_ip
        self.overrides = parse_overrides(overrides)
        self._credit.rate = creation_rate

    def limit_listeners(self, limits: Mapping[str, ListenerLimits]) -> None:
        """Sets listeners' own limits, by name; other listeners have none from now on."""
        self._listeners = limits
        for name, given in limits.items():
            self._credits.setdefault(name, _Credit(given.creation_rate)).rate = given.creation_rate
        for name in self._credits.keys() - limits.keys():
            del self._credits[name]

    def limit_ip(self, ip: str, rate: float | None) -> None:
        """Sets connection_creation_rate for an address, or the default for all others."""
        self._created.clear()
        if rate is None:
            self._ip_rates.pop(ip, None)
        else:
            self._ip_rates[ip] = rate

    def ip_delay_ms(self, ip: str, now_ms: int) -> int:
        """Counts a new connection, and returns 0; or the time after which to close one too many."""
        if not self._ip_rates:
            return 0
        bound = self._ip_rates.get(ip, self._ip_rates.get(DEFAULT))
        if bound is None:
            return 0
        created = self._created.get(ip)
        if created is None:
            if len(self._created) >= _MANY_ADDRESSES:
                self._created = {a: r for a, r in self._created.items() if not r.idle(now_ms)}
            created = self._created[ip] = SampledRate(*self._windows)
        created.record(1, now_ms)
        delay_ms = created.throttle_ms(bound, now_ms)
        if delay_ms:
            created.record(-1, now_ms)
        return min(delay_ms, _HELD_MS)

    def problem(self, listener: str) -> str | None:
        """Which limit makes the listener's acceptor wait, if one does."""
        most = self._listeners.get(listener, _UNLIMITED).max_connections
        if self._by_listener.get(listener, 0) >= most:
            return f"listener.name.{listener.lower()}.max.connections={most}"
        if listener not in self._protected and self.full:
            return f"max.connections={self.max_connections}"
        return None

    @property
    def full(self) -> bool:
        return self.total >= self.max_connections

    def add(self, ip: str, listener: str = "") -> None:
        """Counts a new connection; or raises TooManyConnections, and does not count it."""
        have = self._by_ip.get(ip, 0)
        allowed = self.overrides.get(ip, self.per_ip)
        if have >= allowed:
            raise TooManyConnections(
                f"{ip} has {have} connections already; max.connections.per.ip={allowed}"
            )
        self._by_ip[ip] = have + 1
        self._by_listener[listener] = self._by_listener.get(listener, 0) + 1
        self.total += 1

    def remove(self, ip: str, listener: str = "") -> None:
        self.total -= 1
        self._by_listener[listener] -= 1
        have = self._by_ip[ip] - 1
        if have:
            self._by_ip[ip] = have
        else:
            del self._by_ip[ip]

    def delay_ms(self, now_ms: int, listener: str = "") -> int:
        """The time to wait before the next accept; 0 also counts a connection as created."""
        credits = [self._credits[listener]] if listener in self._credits else []
        if listener not in self._protected:
            credits.append(self._credit)
        delay_ms = max((credit.delay_ms(now_ms) for credit in credits), default=0)
        if not delay_ms:
            for credit in credits:
                credit.take()
        return delay_ms
