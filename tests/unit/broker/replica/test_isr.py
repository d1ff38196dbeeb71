from __future__ import annotations

import pytest

from highwater.broker.replica.isr import Isr
from highwater.kafka.types import ZkVersion


def test_maximal_isr_counts_both_sides_of_a_pending_change() -> None:
    isr = Isr((1, 2), ZkVersion(4))
    isr.propose((1, 2, 3))
    assert list(isr.maximal) == [1, 2, 3]
    assert list(isr.members) == [1, 2]
    isr.settle(ZkVersion(5))
    assert list(isr.members) == [1, 2, 3]
    assert int(isr.zk_version) == 5
    isr.propose((1,))
    assert isr.maximal == (1, 2, 3), "a shrink that may not have happened shrinks nothing"


def test_one_change_at_a_time() -> None:
    isr = Isr((1, 2, 3), ZkVersion(0))
    isr.propose((1, 2))
    assert not isr.may_change
    with pytest.raises(AssertionError):
        isr.propose((1,))


def test_a_refused_change_blocks_until_leader_and_isr() -> None:
    isr = Isr((1,), ZkVersion(0))
    isr.propose((1, 2))
    isr.refuse()
    assert not isr.may_change
    assert isr.maximal == (1, 2), "an earlier attempt may have stood for a while"
    isr.reset((1, 3), ZkVersion(7))
    assert list(isr.maximal) == [1, 3]
    isr.propose((1,))
