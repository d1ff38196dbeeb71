"""A share group's own properties, and the brokers'."""

from __future__ import annotations

from highwater.broker.settings.share_offset_reset import OffsetReset
from highwater.broker.share.share_settings import ShareSettings, settings_of


def test_a_groups_own_properties() -> None:
    assert settings_of(30_000, {}) == ShareSettings(30_000, OffsetReset("latest"), False)
    own = {
        "share.record.lock.duration.ms": 15_000,
        "share.auto.offset.reset": "earliest",
        "share.isolation.level": "read_committed",
    }
    assert settings_of(30_000, own) == ShareSettings(15_000, OffsetReset("earliest"), True)
