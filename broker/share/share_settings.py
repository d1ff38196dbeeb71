"""The properties of one share group that a partition's leader needs: its own, or the brokers'."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from highwater.broker.settings.group_configs import (
    SHARE_ISOLATION_LEVEL,
    SHARE_LOCK_DURATION,
    SHARE_OFFSET_RESET,
)
from highwater.broker.settings.share_offset_reset import LATEST, OffsetReset, parse


@dataclass(frozen=True, slots=True)
class ShareSettings:
    lock_ms: int
    auto_offset_reset: OffsetReset
    read_committed: bool


def settings_of(lock_ms: int, own: Mapping[str, Any]) -> ShareSettings:
    """`lock_ms` is the brokers' own; `own` has what the group has been given, checked."""
    return ShareSettings(
        int(own.get(SHARE_LOCK_DURATION, lock_ms)),
        parse(own.get(SHARE_OFFSET_RESET, LATEST)),
        own.get(SHARE_ISOLATION_LEVEL) == "read_committed",
    )
