from __future__ import annotations

from highwater.broker.replica.follower import Follower

LAG = 10_000


def follower() -> Follower:
    f = Follower(2)
    f.new_term(True, True, 100, 1_000)
    return f


def test_a_member_of_the_isr_gets_its_full_time_to_show_up() -> None:
    f = follower()
    assert f.caught_up(100, 11_000, LAG)
    assert not f.caught_up(100, 11_001, LAG)


def test_a_replica_outside_the_isr_never_holds_back_a_new_leader() -> None:
    f = Follower(2)
    f.new_term(True, False, 100, 1_000)
    assert not f.caught_up(100, 1_000, LAG)


def test_one_fetch_behind_counts_as_caught_up_at_the_previous_fetch() -> None:
    f = follower()
    f.fetched(100, 0, 150, 2_000)  # not at the end, and behind
    f.fetched(150, 0, 200, 3_000)  # has what the leader had at 2,000
    assert f.last_caught_up_ms == 2_000
    f.fetched(160, 0, 300, 4_000)  # falls behind
    assert f.last_caught_up_ms == 2_000
    assert not f.caught_up(300, 12_001, LAG)


def test_at_the_leaders_end_is_caught_up_however_long_ago() -> None:
    f = follower()
    f.fetched(100, 0, 100, 2_000)
    assert f.caught_up(100, 1_000_000, LAG)


def test_a_leader_that_goes_on_keeps_what_it_knows_of_the_log() -> None:
    f = follower()
    f.fetched(120, 3, 120, 2_000)
    f.new_term(False, False, 130, 2_500)
    assert f.log_end_offset == 120
    assert not f.caught_up(130, 2_500, LAG), "it left the ISR: the HW must not wait for it"
