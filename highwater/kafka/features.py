"""Features: what brokers can do beyond inter.broker.protocol.version 2.6, by names and levels.

Each broker announces in its registration which features it supports, and the controller tells all
brokers which of them are *in use*: those that every registered broker announces, at the lowest of
their levels.  So a cluster with a broker that announces nothing (Apache Kafka's, or an earlier one
of ours) uses no features, and uses them as soon as that broker is gone.  A *limit*, which
UpdateFeatures writes into a znode, keeps a feature at a lower level.

A version of an API that needs a feature is offered while the feature is in use.  A broker answers
it at any time, because a client may have been offered it a moment before.

Clients know only Kafka's own features: ApiVersions calls their levels in use *finalized*.  They
have an epoch, which rises with each change (KIP-584).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from highwater.kafka.types import BrokerInfo

TOPIC_IDS: Final = "highwater.topic.ids"
GROUP_VERSION: Final = "group.version"
"""Kafka's feature: the consumer group protocol of KIP-848, whose members name topics by ids."""
SHARE_VERSION: Final = "share.version"
"""Kafka's feature: share groups (KIP-932), whose members name topics by ids, too."""
TRANSACTION_VERSION: Final = "transaction.version"
"""Kafka's feature: from level 2 on, each end of a transaction gives its producer a new epoch."""
SUPPORTED: Final = {GROUP_VERSION: 1, SHARE_VERSION: 1, TRANSACTION_VERSION: 2, TOPIC_IDS: 1}
"""The features that this program supports, with their levels."""
KAFKAS: Final = {name: most for name, most in SUPPORTED.items() if not name.startswith("highwater")}
"""Those that clients know, which UpdateFeatures can limit; their lowest level is 0."""

Levels = tuple[tuple[str, int], ...]
"""Features in use, each with its level, in the order of their names."""

NO_EPOCH: Final = -1
"""The epoch of finalized features where no controller has named any."""

NEEDED: Final[dict[int, tuple[tuple[int, str], ...]]] = {
    # v12 relies on coordinators that add partitions for brokers
    0: ((12, TRANSACTION_VERSION), (13, TOPIC_IDS)),
    1: ((13, TOPIC_IDS),),
    8: ((10, TOPIC_IDS),),
    9: ((10, TOPIC_IDS),),
    68: ((0, GROUP_VERSION),),
    69: ((0, GROUP_VERSION),),
    **dict.fromkeys((*range(76, 80), *range(83, 88), *range(90, 93)), ((0, SHARE_VERSION),)),
}
"""API key -> (version, the feature that it and later versions need)."""


def announced(topic_ids: bool) -> dict[str, int]:
    """The features that a broker announces with this value of highwater.topic.ids.  Without ids
    there is no consumer group protocol, and are no share groups, whose members name topics by them.
    """
    without = () if topic_ids else (TOPIC_IDS, GROUP_VERSION, SHARE_VERSION)
    return {name: most for name, most in SUPPORTED.items() if name not in without}


def in_use(registered: Iterable[BrokerInfo], limits: Mapping[str, int]) -> Levels:
    """The features that all these brokers announce, no higher than their limits."""
    brokers = list(registered)
    if not brokers:
        return ()
    least = {
        name: min(limits.get(name, most), *(b.level(name) for b in brokers))
        for name, most in SUPPORTED.items()
    }
    return tuple((name, level) for name, level in sorted(least.items()) if level > 0)


def offered(key: int, versions: tuple[int, int], levels: Levels) -> tuple[int, int] | None:
    """The versions of an API that are offered while these features are in use; None if none is."""
    low, high = versions
    used = dict(levels)
    for first, feature in NEEDED.get(key, ()):
        if feature not in used:
            high = min(high, first - 1)
    return (low, high) if low <= high else None
