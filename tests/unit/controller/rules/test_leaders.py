"""Elections on request, preferred leaders, controlled shutdown, ISR changes."""

from __future__ import annotations

import pytest

from highwater.controller.rules.effects import Refuse, Reply, Schedule, SendUpdateMetadata
from highwater.controller.rules.events import (
    AutoPreferredElection,
    ControlledShutdown,
    ElectLeaders,
)
from highwater.controller.rules.state import Settings
from highwater.kafka import znodes
from highwater.kafka.errors import ErrorCode
from highwater.kafka.types import BrokerEpoch, BrokerId
from highwater.world.api import Create
from tests.unit.controller.lab import Lab, ids, leader_and_isr, metadata, stopped, tp

B1, B2, B3 = ids(1, 2, 3)
ANY_EPOCH = BrokerEpoch(-1)


def lab_led_by_2() -> Lab:
    """A lab in which t-0 has replicas 1, 2, 3 all in sync, and 2 leads."""
    lab = Lab(1, 2, 3)
    lab.create_topic("t", (1, 2, 3))
    lab.elect()
    lab.kill(1).settle()
    lab.start(1).settle()
    lab.leader_writes_isr(tp(), 2, 3, 1).settle()
    assert lab.state(tp()).leader == 2
    return lab


def elect(lab: Lab, *partitions: int, unclean: bool = False, all_: bool = False) -> object:
    wanted = None if all_ else tuple(tp(partition=p) for p in partitions)
    (reply,) = [o for o in lab.do(ElectLeaders(7, wanted, unclean)) if isinstance(o, Reply)]
    assert reply.token == 7
    return reply.value


def test_preferred_election_on_request() -> None:
    lab = lab_led_by_2()
    before = lab.state(tp())
    assert elect(lab, 0) == {tp(): (ErrorCode.NONE, None)}
    assert lab.state(tp())[1:4] == (1, before.leader_epoch + 1, ids(2, 3, 1))
    for broker in (1, 2, 3):
        assert leader_and_isr(lab.orders, broker)[tp()].state.leader == 1
    assert elect(lab, 0) == {tp(): (ErrorCode.ELECTION_NOT_NEEDED, None)}
    assert elect(lab, all_=True) == {}


def test_the_preferred_replica_must_be_in_sync() -> None:
    lab = lab_led_by_2()
    lab.leader_writes_isr(tp(), 2, 3).settle()
    answer = elect(lab, 0)
    assert isinstance(answer, dict)
    assert answer[tp()][0] is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert lab.state(tp()).leader == 2


def test_elections_of_what_is_not_there() -> None:
    lab = lab_led_by_2()
    lab.delete_topic("t").settle()
    (reply,) = [
        o for o in lab.do(ElectLeaders(1, (tp("x"), tp()), unclean=False)) if isinstance(o, Reply)
    ]
    codes = {t: code for t, (code, _) in reply.value.items()}
    assert codes == {
        tp("x"): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        tp(): ErrorCode.INVALID_TOPIC_EXCEPTION,
    }


def test_unclean_election_on_request() -> None:
    lab = Lab(1, 2)
    lab.create_topic("t", (1, 2), (2, 1))
    lab.elect()
    lab.leader_writes_isr(tp(), 1).settle()
    lab.kill(1).settle()
    assert lab.state(tp()).leader == -1
    assert elect(lab, 0, 1, unclean=True) == {
        tp(): (ErrorCode.NONE, None),
        tp(partition=1): (ErrorCode.ELECTION_NOT_NEEDED, None),
    }
    assert lab.state(tp())[1:4] == (2, 2, ids(2))


def test_an_unclean_election_needs_somebody_alive() -> None:
    lab = Lab(1, 2)
    lab.create_topic("t", (2,))
    lab.elect()
    lab.kill(2).settle()
    answer = elect(lab, 0, unclean=True)
    assert isinstance(answer, dict)
    assert answer[tp()][0] is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


def test_preferred_election_through_the_znode() -> None:
    lab = lab_led_by_2()
    path = znodes.PREFERRED_REPLICA_ELECTION
    lab.write(Create(path, znodes.encode_preferred_replica_election([tp(), tp("x")])))
    lab.settle()
    assert lab.state(tp()).leader == 1
    assert not lab.exists(path)
    lab.write(Create(path, b"not JSON"))
    lab.settle()
    assert not lab.exists(path)


def test_leaders_return_by_themselves() -> None:
    lab = lab_led_by_2()
    orders = lab.do(AutoPreferredElection())
    assert lab.state(tp()).leader == 1
    assert Schedule(300_000, AutoPreferredElection()) in orders


def test_leaders_return_only_where_the_imbalance_is_large_enough() -> None:
    lab = Lab(1, 2)
    lab.create_topic("t", *[(1, 2)] * 10)
    lab.elect()
    # one of ten is 10 per cent, and the limit is "more than 10"
    lab.machine.state.leadership[tp()] = lab.machine.state.leadership[tp()]._replace(leader=B2)
    lab.do(AutoPreferredElection())
    assert lab.machine.state.elections == 0
    second = tp(partition=1)
    lab.machine.state.leadership[second] = lab.machine.state.leadership[second]._replace(leader=B2)
    lab.do(AutoPreferredElection())
    assert lab.machine.state.elections == 2


@pytest.mark.parametrize("enabled", [True, False])
def test_a_new_controller_checks_the_balance_soon(enabled: bool) -> None:
    lab = Lab(1, settings=Settings(broker_id=B1, auto_leader_rebalance_enable=enabled))
    assert (Schedule(5000, AutoPreferredElection()) in lab.elect()) == enabled


def test_controlled_shutdown() -> None:
    lab = Lab(1, 2, 3)
    lab.create_topic("t", (1, 2, 3), (2, 1, 3), (1,))
    lab.elect()
    orders = lab.do(ControlledShutdown(5, B1, ANY_EPOCH))
    assert [o for o in orders if isinstance(o, Reply)] == [Reply(5, [])]
    assert lab.state(tp())[1:4] == (2, 1, ids(2, 3))
    assert lab.state(tp(partition=1))[1:4] == (2, 1, ids(2, 3))
    assert lab.state(tp(partition=2)).leader == 1  # no other replica has it
    assert tp(partition=1) in stopped(orders, 1, delete=False)
    # the leader that goes hears of its successor
    assert leader_and_isr(orders, 1)[tp()].state.leader == 2
    assert isinstance(orders[-1], Reply)


def test_a_broker_that_shuts_down_gets_no_new_leaderships() -> None:
    lab = Lab(1, 2)
    lab.create_topic("t", (1, 2))
    lab.elect()
    lab.do(ControlledShutdown(5, B2, ANY_EPOCH))
    lab.leader_writes_isr(tp(), 1, 2)  # it still fetches, and is back in the ISR
    lab.settle()
    lab.kill(1).settle()
    assert lab.state(tp()).leader == -1


def test_what_cannot_move_is_told() -> None:
    lab = Lab(1, 2)
    lab.create_topic("t", (1, 2))
    lab.elect()
    lab.leader_writes_isr(tp(), 1).settle()
    orders = lab.do(ControlledShutdown(5, B1, ANY_EPOCH))
    assert orders[-1] == Reply(5, [tp()])
    assert lab.state(tp()).leader == 1


def test_controlled_shutdown_of_the_wrong_broker() -> None:
    lab = Lab(1, 2)
    lab.elect()
    (unknown,) = lab.do(ControlledShutdown(5, BrokerId(9), ANY_EPOCH))
    assert isinstance(unknown, Refuse)
    assert unknown.code is ErrorCode.BROKER_NOT_AVAILABLE
    epoch = lab.machine.state.brokers[B2].epoch
    (stale,) = lab.do(ControlledShutdown(5, B2, BrokerEpoch(epoch - 1)))
    assert isinstance(stale, Refuse)
    assert stale.code is ErrorCode.STALE_BROKER_EPOCH
    assert not lab.machine.state.shutting_down


def test_isr_changes_are_told_to_all() -> None:
    lab = Lab(1, 2, 3)
    lab.create_topic("t", (1, 2, 3), (2, 3, 1))
    lab.elect()
    lab.leader_writes_isr(tp(), 1, 2)
    orders = lab.leader_writes_isr(tp(partition=1), 2, 3).settle()
    assert metadata(orders, 3)[tp()].state.isr == ids(1, 2)
    assert metadata(orders, 1)[tp(partition=1)].state.zk_version == 1
    assert lab.machine.state.leadership[tp()].isr == ids(1, 2)
    assert lab.children(znodes.ISR_CHANGES) == []
    lab.write(Create(znodes.ISR_CHANGE_PREFIX, b"garbage", sequential=True))
    assert not [o for o in lab.settle() if isinstance(o, SendUpdateMetadata)]
    assert lab.children(znodes.ISR_CHANGES) == []
