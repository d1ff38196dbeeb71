"""Decides when a registered broker counts as dead: a pure machine over connections and probes.

A killed process closes its sockets at once, while its registration lives on for seconds.  So each
registered broker is watched through an open connection.  If that ends, the broker is *lost*, and is
probed with a fresh connection; if the probe fails, it is *suspected*.  A process that is stopped or
cut off silently keeps its connection, and is left to ZooKeeper's session.

Two rules keep a bad network from doing harm.  After a wrong suspicion the next one of that broker
must wait, twice as long each time.  And brokers that cannot be reached, which may be the fault of
this broker's own link, are suspected only while they are fewer than half of those registered.  A
refused connection needs no such caution, because there the host has answered that no process
listens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from highwater.kafka.types import BrokerEpoch, BrokerId, BrokerInfo

FIRST_WAIT_MS = 10_000
LONGEST_WAIT_MS = 300_000


class Registered(NamedTuple):
    """The brokers that are registered now, without this broker."""

    brokers: tuple[BrokerInfo, ...]


class Connected(NamedTuple):
    """A probe was answered, and the connection is kept."""

    broker_id: BrokerId


class Lost(NamedTuple):
    """The connection that was kept has ended."""

    broker_id: BrokerId


class ProbeFailed(NamedTuple):
    broker_id: BrokerId
    refused: bool


Happening = Registered | Connected | Lost | ProbeFailed


class Verdict(NamedTuple):
    """`suspect` is True for a new suspect, and False once a suspect has answered."""

    broker_id: BrokerId
    suspect: bool


class _Link(Enum):
    UNKNOWN = "unknown"
    """Never connected yet: it may be starting."""
    CONNECTED = "connected"
    LOST = "lost"
    SUSPECTED = "suspected"


@dataclass(slots=True)
class _Broker:
    epoch: BrokerEpoch
    link: _Link = _Link.UNKNOWN
    wrong: int = 0
    not_before_ms: int = 0


class Suspicion:
    def __init__(self) -> None:
        self._brokers: dict[BrokerId, _Broker] = {}

    def step(self, happening: Happening, now_ms: int) -> list[Verdict]:
        match happening:
            case Registered(brokers):
                old = self._brokers
                self._brokers = {}
                for info in brokers:
                    known = old.get(info.id)
                    same = known is not None and known.epoch == info.epoch
                    self._brokers[info.id] = (
                        known if known is not None and same else _Broker(info.epoch)
                    )
                return []
            case Connected(broker_id):
                return self._connected(broker_id, now_ms)
            case Lost(broker_id):
                broker = self._brokers.get(broker_id)
                if broker is not None and broker.link is _Link.CONNECTED:
                    broker.link = _Link.LOST
                return []
            case ProbeFailed(broker_id, refused):
                return self._probe_failed(broker_id, refused, now_ms)

    def at_start(self, silent: Mapping[BrokerId, bool]) -> dict[BrokerId, bool]:
        """The brokers to suspect from the start, among those that did not answer a new controller.

        `silent` says for each whether the connection was refused.
        """
        found: dict[BrokerId, bool] = {}
        for broker_id, refused in sorted(silent.items(), key=lambda item: (not item[1], item[0])):
            broker = self._brokers.get(broker_id)
            if broker is not None and (refused or self._few(1)):
                broker.link = _Link.SUSPECTED
                found[broker_id] = refused
        return found

    def _connected(self, broker_id: BrokerId, now_ms: int) -> list[Verdict]:
        broker = self._brokers.get(broker_id)
        if broker is None:
            return []
        was, broker.link = broker.link, _Link.CONNECTED
        if was is not _Link.SUSPECTED:
            return []
        wait = min(FIRST_WAIT_MS << min(broker.wrong, 10), LONGEST_WAIT_MS)
        broker.wrong += 1
        broker.not_before_ms = now_ms + wait
        return [Verdict(broker_id, suspect=False)]

    def _probe_failed(self, broker_id: BrokerId, refused: bool, now_ms: int) -> list[Verdict]:
        broker = self._brokers.get(broker_id)
        if broker is None or broker.link is not _Link.LOST or now_ms < broker.not_before_ms:
            return []
        if not refused and not self._few(1):
            return []
        broker.link = _Link.SUSPECTED
        return [Verdict(broker_id, suspect=True)]

    def _few(self, more: int) -> bool:
        """Whether the suspects, with `more` added, are fewer than half of the registered brokers
        and this one."""
        suspected = sum(b.link is _Link.SUSPECTED for b in self._brokers.values())
        return 2 * (suspected + more) < len(self._brokers) + 1


class TakeOver:
    """Decides whether a candidate may take /controller from a broker that seems dead.

    It may if its connection ended and a probe failed, or a first connection was refused.  It must
    then wait before it may do so again: the epoch fences a controller that was wrongly taken for
    dead, but each move costs the cluster a full round of requests.
    """

    def __init__(self) -> None:
        self._wait_ms = FIRST_WAIT_MS
        self._not_before_ms = 0

    def may(self, now_ms: int, *, was_connected: bool, refused: bool) -> bool:
        return (was_connected or refused) and now_ms >= self._not_before_ms

    def took(self, now_ms: int) -> None:
        if now_ms > self._not_before_ms + 4 * self._wait_ms:
            self._wait_ms = FIRST_WAIT_MS
        self._not_before_ms = now_ms + self._wait_ms
        self._wait_ms = min(2 * self._wait_ms, LONGEST_WAIT_MS)
