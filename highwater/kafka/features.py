"""Features: what brokers can do beyond inter.broker.protocol.version 2.6, by names and levels.

Each broker announces what it supports in its registration, and the controller tells all brokers
which of it is *in use*: a feature that every registered broker announces, at the least of their
levels.  So beside a broker that announces nothing (Apache Kafka's, an earlier one of ours) the
cluster is as before, and goes on as soon as that broker is gone.

A version of an API that needs a feature is offered while that is in use.  A broker answers it at
any time, because a client may have learned of it a moment before.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from highwater.kafka.types import BrokerInfo

TOPIC_IDS: Final = "highwater.topic.ids"
SUPPORTED: Final = {TOPIC_IDS: 1}
"""What this program knows."""

Levels = tuple[tuple[str, int], ...]
"""Features in use, each with its level, in the order of their names."""

NEEDED: Final[dict[int, tuple[tuple[int, str], ...]]] = {
    0: ((13, TOPIC_IDS),),
    1: ((13, TOPIC_IDS),),
    8: ((10, TOPIC_IDS),),
    9: ((10, TOPIC_IDS),),
}
"""By API key: from which version on it needs which feature."""


def announced(topic_ids: bool) -> dict[str, int]:
    """What a broker announces whose highwater.topic.ids is this."""
    return {name: most for name, most in SUPPORTED.items() if topic_ids or name != TOPIC_IDS}


def in_use(registered: Iterable[BrokerInfo]) -> Levels:
    """What all of them announce."""
    brokers = list(registered)
    if not brokers:
        return ()
    least = {name: min(b.level(name) for b in brokers) for name in SUPPORTED}
    return tuple((name, level) for name, level in sorted(least.items()) if level)


def offered(key: int, versions: tuple[int, int], levels: Levels) -> tuple[int, int]:
    """The versions of an API that are offered while these features are in use."""
    low, high = versions
    used = dict(levels)
    for first, feature in NEEDED.get(key, ()):
        if feature not in used:
            high = min(high, first - 1)
    return low, high
