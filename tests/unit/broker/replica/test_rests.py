"""A partition rests for a follower only while nothing changes on which its read depended."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from highwater.broker.replica.fetch_sessions import FetchSession, FetchSessions
from highwater.broker.replica.rests import Rest
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.fetch import FetchedPartition, FetchPartition, FetchRequest
from tests.unit.broker.replica.test_partition import LAG, TP, Rig

FOLLOWER, OTHER = 2, 3


class AtRest:
    """A partition of which broker 2 has all, and has been told so in a session."""

    def __init__(self, folder: Path) -> None:
        self.rig = Rig(folder)
        self.partition = self.rig.lead()
        self.news: list[FetchSession] = []
        self.sessions = FetchSessions(10, lambda: 7, self.news.append)
        self.epoch = 0
        end = self.rig.append(3)
        for follower in (FOLLOWER, OTHER):
            self.rig.fetch(follower, end)
        self.asked = FetchPartition(TP, self.partition.leader_epoch, end, -1, 0, 1000)
        assert self.fetch([self.asked]) == [self.asked]
        self.let_rest(FetchedPartition(TP, 0, end, end, 0, b"", 0))

    def let_rest(self, told: FetchedPartition) -> None:
        follower = self.partition.followers[FOLLOWER]
        rest = Rest(self.session, self.partition, follower, self.asked, told)
        assert rest.holds()
        self.session.rest(rest)
        assert self.rests

    def fetch(
        self, partitions: list[FetchPartition], forgotten: tuple[TopicPartition, ...] = ()
    ) -> list[FetchPartition]:
        """The partitions that the leader has to read for the session's next fetch."""
        session = 7 if self.epoch else 0
        request = FetchRequest(
            FOLLOWER, 0, 1, 1000, 0, session, self.epoch, partitions, list(forgotten), ""
        )
        entered, asked, _ = self.sessions.enter(request, self.rig.now)
        assert entered is not None
        self.session, self.epoch = entered, self.epoch + 1
        return asked

    @property
    def rests(self) -> bool:
        rest = self.session.rests.get(TP)
        follower = self.partition.followers.get(FOLLOWER)
        assert rest is None or (follower is not None and follower.rest is rest)
        assert (TP in self.session.awake) is (rest is None)
        assert rest is None or rest.holds()
        return rest is not None


def appended(at: AtRest) -> None:
    at.rig.append()


def deleted_below(at: AtRest) -> None:
    at.partition.require_log().advance_log_start(1)
    at.partition.stir()  # as the replica manager does


def leads_a_newer_epoch(at: AtRest) -> None:
    at.rig.lead(epoch=1)


def follows(at: AtRest) -> None:
    at.partition.make_follower(at.rig.state(2, 1, (2,)))


def stopped(at: AtRest) -> None:
    at.partition.stop(delete=False)


def deleted(at: AtRest) -> None:
    at.partition.stop(delete=True)


def offline(at: AtRest) -> None:
    at.partition.go_offline()


def in_another_directory(at: AtRest) -> None:
    at.partition.log_moved(at.partition.require_log())


def out_of_the_isr(at: AtRest) -> None:
    at.rig.lead(isr=(1, 3))


def another_isr(at: AtRest) -> None:
    at.rig.append()
    at.rig.fetch(FOLLOWER, at.rig.end)
    at.asked = at.asked._replace(fetch_offset=at.rig.end)
    at.fetch([at.asked])
    at.let_rest(FetchedPartition(TP, 0, at.rig.end - 1, at.rig.end - 1, 0, b"", 0))
    at.rig.now += LAG + 1
    at.fetch([])
    change = at.partition.maybe_shrink(at.rig.now)
    assert change is not None
    assert change.isr == (1, FOLLOWER), "who is at rest stays"
    assert at.rests
    at.partition.isr_settled(change, change.zk_version, at.rig.now)


def restarted(at: AtRest) -> None:
    at.rig.fetch(FOLLOWER, 0)


def asked_for_another_offset(at: AtRest) -> None:
    again = at.asked._replace(fetch_offset=1)
    assert at.fetch([again]) == [again]


CHANGES = [
    appended, deleted_below, leads_a_newer_epoch, follows, stopped, deleted, offline,
    in_another_directory, out_of_the_isr, another_isr, restarted, asked_for_another_offset,
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_ends_it_and_is_told(change: Callable[[AtRest], None], tmp_path: Path) -> None:
    at = AtRest(tmp_path)
    assert at.fetch([]) == []
    change(at)
    assert not at.rests
    assert set(at.news) == {at.session}
    assert [p.tp for p in at.fetch([])] == [TP]


def test_a_hw_that_moved_is_news(tmp_path: Path) -> None:
    at = AtRest(tmp_path)
    end = at.rig.append()
    at.rig.fetch(FOLLOWER, end)
    at.asked = at.asked._replace(fetch_offset=end)
    at.fetch([at.asked])
    at.let_rest(FetchedPartition(TP, 0, end - 1, end - 1, 0, b"", 0))
    at.rig.fetch(OTHER, end)
    assert not at.rests


def test_what_is_forgotten_is_neither_awake_nor_at_rest(tmp_path: Path) -> None:
    at = AtRest(tmp_path)
    assert at.fetch([], (TP,)) == []
    assert not at.session.awake
    assert not at.session.rests
    assert at.partition.followers[FOLLOWER].rest is None


def test_a_session_that_is_closed_lets_go(tmp_path: Path) -> None:
    at = AtRest(tmp_path)
    at.sessions.close(at.session)
    assert at.partition.followers[FOLLOWER].rest is None


def test_its_fetches_keep_the_follower_in_the_isr(tmp_path: Path) -> None:
    """The time of the last fetch counts when records come that the follower does not have yet."""
    at = AtRest(tmp_path)
    at.rig.now += 10 * LAG
    at.fetch([])
    at.rig.fetch(OTHER, at.asked.fetch_offset)
    at.rig.append()
    assert at.partition.maybe_shrink(at.rig.now + LAG) is None
    change = at.partition.maybe_shrink(at.rig.now + LAG + 1)
    assert change is not None
    assert change.isr == (1,)


def test_who_no_longer_fetches_leaves_the_isr(tmp_path: Path) -> None:
    """Rest alone is no sign of life."""
    at = AtRest(tmp_path)
    at.rig.now += LAG + 1
    at.rig.fetch(OTHER, at.asked.fetch_offset)
    at.rig.append()
    change = at.partition.maybe_shrink(at.rig.now)
    assert change is not None
    assert change.isr == (1, OTHER)
