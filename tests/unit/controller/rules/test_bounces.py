"""A broker that came back while there was no controller to see it.

It leads no partition of which it may have lost the end, and every later controller knows which
lives were dealt with.
"""

from __future__ import annotations

from highwater.controller.rules.effects import AddBroker
from highwater.controller.rules.events import Recovered
from highwater.kafka import znodes
from highwater.kafka.types import BrokerEpoch, BrokerId
from highwater.world.api import SetData
from tests.unit.controller.lab import Lab, ids, leader_and_isr, tp


def topics(lab: Lab) -> None:
    lab.create_topic("t", (1, 2, 3), (2, 3, 1), (1,))
    lab.elect()
    lab.settle()


def test_a_leader_that_bounced_unseen_leaves_the_isr_before_the_first_election() -> None:
    lab = Lab(1, 2, 3)
    topics(lab)
    lab.bounce(1)
    orders = lab.elect()
    now = lab.state(tp())
    assert (now.leader, now.isr) == (2, ids(2, 3))
    assert now.leader_epoch > 0
    assert lab.state(tp(partition=1)).isr == ids(2, 3)
    assert [o.broker.id for o in orders if isinstance(o, AddBroker)] == [2, 3, 1]
    told = leader_and_isr(orders, 1)
    assert {told[tp(partition=p)].state.leader for p in (0, 1)} == {2}


def test_who_is_alone_in_the_isr_leads_on_in_another_epoch() -> None:
    lab = Lab(1, 2, 3)
    topics(lab)
    lab.bounce(1)
    lab.elect()
    now = lab.state(tp(partition=2))
    assert (now.leader, now.isr) == (1, ids(1))
    assert now.leader_epoch > 0, "what it lost would be written anew in the same epoch"


def test_a_bounce_that_a_controller_saw_is_not_handled_again() -> None:
    lab = Lab(1, 2, 3)
    topics(lab)
    lab.bounce(3).settle()
    lab.leader_writes_isr(tp(), 1, 2, 3).settle()
    before = lab.state(tp())
    lab.elect()
    assert lab.state(tp()) == before


def test_the_first_controller_of_a_cluster_suspects_nobody() -> None:
    lab = Lab(1, 2, 3)
    topics(lab)
    lab.write(SetData(znodes.HANDLED_BROKER_EPOCHS, b""))
    lab.bounce(1)
    before = lab.state(tp())
    lab.elect()
    assert lab.state(tp()) == before


def test_a_record_that_cannot_be_read_means_that_everybody_may_have_bounced() -> None:
    lab = Lab(1, 2)
    lab.create_topic("t", (1, 2))
    lab.elect()
    lab.write(SetData(znodes.HANDLED_BROKER_EPOCHS, b"{"))
    lab.elect()
    assert len(lab.state(tp()).isr) == 1
    data, _ = lab.zk.get(lab.tool, znodes.HANDLED_BROKER_EPOCHS, False)
    assert set(znodes.decode_handled_epochs(data) or ()) == {1, 2}


def test_all_bounced_unseen_and_one_stays_to_lead() -> None:
    lab = Lab(1, 2, 3)
    topics(lab)
    for broker in (1, 2, 3):
        lab.bounce(broker)
    lab.elect()
    now = lab.state(tp())
    assert now.isr == (now.leader,)
    assert now.leader_epoch > 0


def test_a_dead_member_is_waited_for_where_the_other_one_bounced() -> None:
    lab = Lab(1, 2, 3)
    lab.create_topic("t", (1, 2))
    lab.elect()
    lab.bounce(1)
    lab.kill(2)
    lab.elect()
    assert lab.state(tp())[1::2][:1] == (-1,)
    assert lab.state(tp()).isr == ids(2)
    lab.start(2).settle()
    assert lab.state(tp()).leader == 2


def test_a_bounced_broker_that_is_silent_is_suspected_and_out_of_the_isr() -> None:
    lab = Lab(1, 2, 3)
    topics(lab)
    lab.bounce(1)
    lab.silent = {BrokerId(1): True}
    lab.elect()
    assert lab.state(tp()).isr == ids(2, 3)
    assert lab.state(tp(partition=2)).leader == -1
    lab.silent = {}
    lab.do(Recovered(BrokerId(1)))
    lab.settle()
    assert lab.state(tp(partition=2)).leader == 1
    assert lab.state(tp()).isr == ids(2, 3)


def test_the_record_is_written_after_the_isrs() -> None:
    """A controller that dies between the two writes leaves the work to the next one."""
    lab = Lab(1, 2, 3)
    topics(lab)
    lab.bounce(1)
    lab.questions.clear()
    lab.elect()
    written = [
        op.path
        for question in lab.questions
        for group in getattr(question, "groups", ())
        for op in group
        if isinstance(op, SetData)
    ]
    assert written.index(znodes.HANDLED_BROKER_EPOCHS) > written.index(znodes.state_path(tp()))


def test_the_znode() -> None:
    epochs = {BrokerId(2): BrokerEpoch(9), BrokerId(1): BrokerEpoch(4)}
    data = znodes.encode_handled_epochs(epochs)
    assert data == b'{"version":1,"epochs":{"1":4,"2":9}}'
    assert znodes.decode_handled_epochs(data) == epochs
    assert znodes.decode_handled_epochs(b"") is None
