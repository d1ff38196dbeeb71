"""A follower's read that is taken again: only while nothing that it was made from has changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from highwater.broker.replica.quiet_reads import QuietRead
from highwater.broker.replica.reading import PartitionRead
from highwater.kafka.wire.fetch import FetchedPartition, FetchPartition
from tests.unit.broker.replica.test_partition import TP, Rig

FOLLOWER = 2


class AtRest:
    """A partition of which broker 2 has all, and the read that told it so."""

    def __init__(self, folder: Path) -> None:
        self.rig = Rig(folder)
        self.partition = self.rig.lead()
        end = self.rig.append(3)
        for follower in (2, 3):
            self.rig.fetch(follower, end)
        self.asked = FetchPartition(TP, self.partition.leader_epoch, end, -1, 0, 1000)
        result = FetchedPartition(TP, 0, end, end, 0, b"", 0)
        read = PartitionRead(result, at_once=False)
        self.quiet = QuietRead(self.partition, FOLLOWER, self.asked, read)

    @property
    def holds(self) -> bool:
        return self.quiet.holds(self.asked, self.partition)


def appended(at: AtRest) -> None:
    at.rig.append()


def deleted_below(at: AtRest) -> None:
    at.partition.require_log().advance_log_start(1)


def leads_a_newer_epoch(at: AtRest) -> None:
    at.rig.lead(epoch=1)


def follows(at: AtRest) -> None:
    at.partition.make_follower(at.rig.state(2, 1, (2,)))


def stopped(at: AtRest) -> None:
    at.partition.stop(delete=False)


def offline(at: AtRest) -> None:
    at.partition.go_offline()


def out_of_the_isr(at: AtRest) -> None:
    at.rig.lead(isr=(1, 3))


def restarted(at: AtRest) -> None:
    at.rig.fetch(FOLLOWER, 0)


def asked_for_another_offset(at: AtRest) -> None:
    at.asked = at.asked._replace(fetch_offset=1)


@pytest.mark.parametrize(
    "change",
    [
        appended,
        deleted_below,
        leads_a_newer_epoch,
        follows,
        stopped,
        offline,
        out_of_the_isr,
        restarted,
        asked_for_another_offset,
    ],
)
def test_a_change_ends_it(change: Callable[[AtRest], None], tmp_path: Path) -> None:
    at = AtRest(tmp_path)
    assert at.holds
    change(at)
    assert not at.holds


def test_a_hw_that_moved_is_news(tmp_path: Path) -> None:
    at = AtRest(tmp_path)
    end = at.rig.append()
    at.asked = at.asked._replace(fetch_offset=end)
    read = PartitionRead(FetchedPartition(TP, 0, end - 1, end - 1, 0, b"", 0), at_once=False)
    at.rig.fetch(FOLLOWER, end)
    at.quiet = QuietRead(at.partition, FOLLOWER, at.asked, read)
    assert at.holds
    at.rig.fetch(3, end)
    assert not at.holds


def test_another_partition_of_the_name_is_another_one(tmp_path: Path) -> None:
    at = AtRest(tmp_path / "one")
    other = AtRest(tmp_path / "other")
    assert not at.quiet.holds(at.asked, other.partition)
    assert not at.quiet.holds(at.asked, None)


def test_it_keeps_the_follower_in_the_isr(tmp_path: Path) -> None:
    """The time of the last fetch counts when records come that the follower does not have yet."""
    at = AtRest(tmp_path)
    at.rig.now += 60_000
    at.quiet.fetched(at.rig.now)
    at.rig.fetch(3, at.asked.fetch_offset)
    at.rig.append()
    assert at.partition.maybe_shrink(at.rig.now + 1) is None
