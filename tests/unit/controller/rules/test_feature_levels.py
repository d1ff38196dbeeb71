"""The levels of features, within their limits, and the epoch that rises with each change."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from highwater.controller.rules.effects import Order, SendUpdateMetadata
from highwater.kafka import znodes
from highwater.kafka.features import GROUP_VERSION, SUPPORTED
from highwater.world.api import Delete, SetData
from tests.unit.controller.lab import Lab

WITHOUT = {name: level for name, level in SUPPORTED.items() if name != GROUP_VERSION}


def sent(orders: Sequence[Order]) -> tuple[dict[str, int], int]:
    """The levels and the epoch that were sent last."""
    last = [o for o in orders if isinstance(o, SendUpdateMetadata)][-1]
    return dict(last.features), last.features_epoch


def limit(lab: Lab, **limits: int) -> list[Order]:
    data = znodes.encode_feature_limits({k.replace("_", "."): v for k, v in limits.items()})
    lab.write(SetData(znodes.FEATURE_LIMITS, data))
    return lab.settle()


def test_a_limit_is_sent_to_all_and_its_end_too() -> None:
    lab = Lab(1, 2)
    levels, first = sent(lab.elect())
    assert levels == SUPPORTED
    orders = limit(lab, group_version=0)
    assert {b for o in orders if isinstance(o, SendUpdateMetadata) for b, _ in o.brokers} == {1, 2}
    assert sent(orders) == (WITHOUT, first + 1)
    assert sent(limit(lab, group_version=1)) == (SUPPORTED, first + 2)
    assert limit(lab, group_version=1) == [], "the levels are the same"


def test_a_later_controller_keeps_the_limit_and_has_a_later_epoch() -> None:
    lab = Lab(1)
    lab.elect()
    _, before = sent(limit(lab, group_version=0))
    levels, epoch = sent(lab.elect())
    assert levels == WITHOUT
    assert epoch > before


def test_levels_fall_and_rise_with_the_brokers() -> None:
    lab = Lab(1, 2)
    _, first = sent(lab.elect())
    lab.old.add(3)
    lab.start(3)
    assert sent(lab.settle()) == ({}, first + 1)
    lab.kill(3)
    assert sent(lab.settle()) == (SUPPORTED, first + 2)


def test_a_limit_above_what_brokers_support_is_none() -> None:
    lab = Lab(1)
    levels, _ = sent(lab.elect())
    assert limit(lab, group_version=7, unknown=1) == []
    assert levels == SUPPORTED


def test_a_deleted_znode_limits_nothing_and_is_watched(caplog: pytest.LogCaptureFixture) -> None:
    lab = Lab(1)
    lab.elect()
    limit(lab, group_version=0)
    lab.write(Delete(znodes.FEATURE_LIMITS))
    assert sent(lab.settle())[0] == SUPPORTED
    lab.make(znodes.FEATURE_LIMITS)
    lab.settle()
    assert sent(limit(lab, group_version=0))[0] == WITHOUT


def test_a_damaged_znode_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    lab = Lab(1)
    lab.elect()
    limit(lab, group_version=0)
    for data in (b"{", b'{"version":1,"limits":{"group.version":-1}}', b'{"limits":[]}'):
        lab.write(SetData(znodes.FEATURE_LIMITS, data))
        assert lab.settle() == []
        assert znodes.FEATURE_LIMITS in caplog.text
        caplog.clear()
    assert sent(lab.elect())[0] == SUPPORTED, "a new controller knows no other limit"
