"""Limits the number of connections, and the rate of new ones.

max.connections.per.ip (with overrides by address): a connection too many is closed at once.
max.connections: the acceptor waits until another connection closes, so clients wait in the listen
queue; the listener between brokers and the control plane never wait, and close the client that was
idle for longest instead.  max.connection.creation.rate: acceptors wait until the average over the
last second is below it.  connection_creation_rate, a quota on an address (KIP-612): connections
that come too fast are accepted, kept open for a while, and closed.

Pure: the caller brings the time.
"""

from __future__ import annotations

from highwater.broker.quota.entities import DEFAULT
from highwater.broker.quota.rates import SampledRate
from highwater.kafka.config import INT_MAX

_MANY_ADDRESSES = 1000
_HELD_MS = 1000


class TooManyConnections(Exception):
    """This address has as many connections as it may have."""


def parse_overrides(text: str) -> dict[str, int]:
    """Parses max.connections.per.ip.overrides, such as "127.0.0.1:200,host2:100"."""
    found: dict[str, int] = {}
    for item in text.split(","):
        address, _, count = item.strip().rpartition(":")
        if address and count.isdigit():
            found[address.strip("[]")] = int(count)
        elif item.strip():
            raise ValueError(
                f"max.connections.per.ip.overrides={text}: {item.strip()!r} is not ADDRESS:COUNT"
            )
    return found


class ConnectionLimits:
    def __init__(
        self,
        max_connections: int = INT_MAX,
        per_ip: int = INT_MAX,
        overrides: str = "",
        creation_rate: int = INT_MAX,
        windows: tuple[int, int] = (11, 1000),
    ) -> None:
        self.configure(max_connections, per_ip, overrides, creation_rate)
        self.total = 0
        self._by_ip: dict[str, int] = {}
        self._credit = float(min(creation_rate, INT_MAX))
        self._credit_at_ms = 0
        self._windows = windows
        self._ip_rates: dict[str, float] = {}
        self._created: dict[str, SampledRate] = {}

    def configure(
        self, max_connections: int, per_ip: int, overrides: str, creation_rate: int
    ) -> None:
        """Applies to new connections; open ones stay."""
        self.max_connections = max_connections
        self.per_ip = per_ip
        self.overrides = parse_overrides(overrides)
        self.creation_rate = creation_rate

    def limit_ip(self, ip: str, rate: float | None) -> None:
        """connection_creation_rate of an address, or the default for all others."""
        self._created.clear()
        if rate is None:
            self._ip_rates.pop(ip, None)
        else:
            self._ip_rates[ip] = rate

    def ip_delay_ms(self, ip: str, now_ms: int) -> int:
        """0 counts a new connection; otherwise it is one too many, to be closed after this time."""
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

    @property
    def full(self) -> bool:
        return self.total >= self.max_connections

    def add(self, ip: str) -> None:
        """Counts a new connection; raises TooManyConnections and does not count it."""
        have = self._by_ip.get(ip, 0)
        allowed = self.overrides.get(ip, self.per_ip)
        if have >= allowed:
            raise TooManyConnections(
                f"{ip} has {have} connections already; max.connections.per.ip={allowed}"
            )
        self._by_ip[ip] = have + 1
        self.total += 1

    def remove(self, ip: str) -> None:
        self.total -= 1
        have = self._by_ip[ip] - 1
        if have:
            self._by_ip[ip] = have
        else:
            del self._by_ip[ip]

    def delay_ms(self, now_ms: int) -> int:
        """The time to wait before the next accept; 0 counts one connection as created."""
        rate = self.creation_rate
        if rate >= INT_MAX:
            return 0
        passed = now_ms - self._credit_at_ms
        self._credit = min(float(rate), self._credit + passed * rate / 1000)
        self._credit_at_ms = now_ms
        if self._credit >= 1:
            self._credit -= 1
            return 0
        return int((1 - self._credit) * 1000 / rate) + 1
