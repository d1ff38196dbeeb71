"""Each verb by the control API: it answers when its effect is seen, and refuses what cannot be."""

from __future__ import annotations

from typing import Any

import pytest

from highwater.agent.client import Control, ControlError
from tests.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


@pytest.fixture
def orders(control: Control) -> Any:
    topic = control.create_topic("orders", partitions=3)
    yield topic
    control.mend()
    control.delete_topic("orders")


def leader(control: Control) -> int:
    return int(control.topic("orders")["partitions"][0]["leader"])


def refused(kind: str, said: str, control: Control, *arguments: Any, **fields: Any) -> None:
    with pytest.raises(ControlError) as error:
        control.fault(*arguments, **fields)
    assert said in error.value.message
    assert "\n" not in error.value.message
    assert error.value.kind == kind


@pytest.mark.usefixtures("orders")
def test_a_leader_dies_and_another_leads(control: Control) -> None:
    old = leader(control)
    fault = control.fault("kill", "leader of orders-0")
    assert fault["target"] == f"broker-{old}"
    assert "ended by SIGKILL, leading" in fault["effect"]
    assert control.status()["members"][f"broker-{old}"]["state"] == "down"
    control.wait(f"leader of orders-0 changed since {fault['id']}", within_s=20)
    assert leader(control) != old
    refused("refused", f"kill: broker-{old} does not run", control, "kill", f"broker-{old}")
    ended = control.end_fault(fault["id"])
    assert ended["ended"] > fault["at"]
    assert control.status()["members"][f"broker-{old}"]["state"] == "up"
    control.wait("isr of orders is full", within_s=30)
    assert leader(control) != old
    back = control.fault("preferred_election", "orders-0")
    assert back["effect"].endswith(f"to {old}")
    assert leader(control) == old
    refused("refused", "leads already", control, "preferred_election", "orders-0")
    control.elect_first_replicas()
    with pytest.raises(ControlError, match=rf"fault {fault['id']} \(kill broker-{old}\) ended at"):
        control.end_fault(fault["id"])


@pytest.mark.usefixtures("orders")
@pytest.mark.parametrize(
    ("kind", "said", "arguments", "fields"),
    [
        ("bad_request", "no verb 'kil'", ("kil", "broker-1"), {}),
        ("bad_request", "no verb 'burst'", ("burst",), {}),
        ("bad_request", "no target 'brokr-2'", ("kill", "brokr-2"), {}),
        ("bad_request", "no partition 'order-0'", ("kill", "leader of order-0"), {}),
        (
            "bad_request",
            "to: no target 'zookeper'",
            ("cut",),
            {"from_": "1", "to": "zookeper"},
        ),
        ("bad_request", "'at' and 'after'", ("kill", "broker-1"), {"at": 3}),
        ("bad_request", "it has no field 'api'", ("kill", "broker-1"), {"api": "Fetch"}),
        ("refused", "broker-1 is not paused; what is: nothing", ("resume", "broker-1"), {}),
        ("refused", "broker-1 runs already", ("start", "broker-1"), {}),
        ("refused", "heal: no link is cut", ("heal",), {}),
    ],
)
def test_what_cannot_be_is_one_line(
    control: Control, kind: str, said: str, arguments: tuple[str, ...], fields: dict[str, Any]
) -> None:
    refused(kind, said, control, *arguments, **fields)


@pytest.mark.usefixtures("orders")
def test_a_link_that_two_faults_cut_is_open_when_both_have_ended(control: Control) -> None:
    both = {"from_": "broker-1", "to": "broker-2"}
    one = control.fault("cut", **both)
    assert (one["effect"], one["target"]) == (None, "broker-1->broker-2, broker-2->broker-1")
    refused("refused", "broker-2->broker-1 is cut already", control, "cut", **both)
    other = control.fault("isolate", "broker-1")
    assert len(control.status()["cuts"]) == 6
    assert "stopped" in control.end_fault(other["id"])["effect"]
    assert control.status()["cuts"] == [["broker-1", "broker-2"], ["broker-2", "broker-1"]]
    control.fault("heal")
    assert control.status()["cuts"] == []
    with pytest.raises(ControlError, match=r"fault \d+ \(cut .*\) ended at"):
        control.end_fault(one["id"])


def test_a_hold_that_held_nothing_is_told_at_its_end(control: Control) -> None:
    fault = control.fault("hold", api="EndTxn")
    with pytest.raises(ControlError, match=r"hold EndTxn request \*->\*: it met no traffic"):
        control.end_fault(fault["id"])
    assert control.status()["faults"] == []


@pytest.mark.usefixtures("orders")
def test_each_verb_that_lasts_ends_by_itself_after_its_time(control: Control) -> None:
    one, other = control.topic("orders")["partitions"][:2]
    leaders = {
        one["leader"],
        other["leader"],
    }  # a kill would take back the pause of the same broker
    follower = next(number for number in one["replicas"] if number not in leaders)
    paused = control.fault("pause", f"broker-{follower}", for_=0.3)
    killed = control.fault("kill", "leader of orders-1", for_=0.3)
    held = control.fault("hold", api="Fetch", side="response", for_=3)
    numbers = [fault["id"] for fault in (paused, killed, held)]
    assert {fault["id"] for fault in control.status()["faults"]} <= set(numbers)

    def ended() -> bool:
        return all("ended" in control.get_fault(number) for number in numbers)

    eventually(ended, "all have ended", control.events)
    control.wait("healthy", within_s=30)
    assert "held" in control.get_fault(held["id"])["effect"]
    texts = [event["text"] for event in control.events()]
    assert any(text.startswith(f"resume {paused['target']}: runs again") for text in texts)
    assert any(text.startswith(f"start {killed['target']}: serves after") for text in texts)


@pytest.mark.usefixtures("orders")
def test_roles_move_as_they_are_told(control: Control) -> None:
    old = leader(control)
    refused(
        "refused", f"broker-{old} leads orders-0 already", control, "swap_leader", "orders-0",
        leader=old,
    )  # fmt: skip
    moved = control.fault("swap_leader", "orders-0")
    assert moved["effect"] == f"the leader moved from {old} to {leader(control)}"
    with pytest.raises(ControlError, match=rf"fault {moved['id']} .* ended at"):
        control.end_fault(moved["id"])
    before = control.status()["controller"]
    assert "is the controller, epoch" in control.fault("move_controller")["effect"]
    assert control.status()["controller"] != -1
    assert control.fault("expire_session", f"broker-{before}")["effect"] == "its znode went"
    control.wait("healthy", within_s=30)
    still = control.fault("stand_still", for_=0.2)
    assert still["target"] == "4 members and 0 clients"
    control.wait("isr of orders is full", within_s=30)


@pytest.mark.usefixtures("orders")
def test_without_zookeeper_calls_are_answered_and_mend_brings_it_back(control: Control) -> None:
    control.fault("kill", "zookeeper")
    before = leader(control)
    assert control.topic("orders")["partitions"][0]["leader"] == before
    assert control.status()["members"]["zookeeper"]["state"] == "down"
    refused("refused", "zookeeper does not run", control, "stop", "zookeeper")
    control.mend()
    control.wait("healthy", within_s=60)


@pytest.mark.usefixtures("orders")
def test_a_wait_that_takes_too_long_shows_the_cluster(control: Control) -> None:
    with pytest.raises(ControlError) as error:
        control.wait("isr of orders-0 is 7", within_s=0.2)
    assert error.value.kind == "timeout"
    assert "after 0.2 s not yet: isr of orders-0 is 7; orders-0 has the leader" in str(error.value)
    assert error.value.state is not None
    assert error.value.state["members"]["broker-1"]["state"] == "up"
    for text, said in (
        ("isr of orders is fll", "is not understood; write one of: healthy; isr of TOPIC is full"),
        ("isr of order-0 is 2", "no partition 'order-0'; there are: orders-0, orders-1, orders-2"),
        ("leader of orders-0 is brokr-2", "target 'brokr-2' is not understood"),
        ("leader of orders-0 changed since 99", "no fault 99"),
    ):
        with pytest.raises(ControlError, match=said):
            control.wait(text, within_s=0.2)


@pytest.mark.usefixtures("orders")
def test_a_broker_whose_disk_is_full_halts_and_comes_back_when_there_is_room(
    control: Control,
) -> None:
    old = leader(control)
    history = control.call("POST", "/v1/history", {})["history"]
    client = {"does": "produce", "topic": "orders"}  # an idle broker writes nothing
    name = control.call("POST", f"/v1/history/{history}/clients", client)["name"]
    full = control.fault("disk_full", "leader of orders-0")
    assert full["target"] == f"broker-{old}"
    assert full["effect"].startswith("halted with code 1 after")
    control.wait(f"leader of orders-0 changed since {full['id']}", within_s=20)
    unexpected = [e["text"] for e in control.events() if "ended with code 1" in e["text"]]
    assert unexpected == [], "it was told to"
    assert control.end_fault(full["id"])["ended"]
    control.wait("isr of orders is full", within_s=30)
    control.call("DELETE", f"/v1/history/{history}/clients/{name}")


@pytest.mark.usefixtures("orders")
def test_a_slow_disk_delays_what_is_written_and_a_clock_jumps_back_at_the_end(
    control: Control,
) -> None:
    target = f"broker-{leader(control)}"
    history = control.call("POST", "/v1/history", {})["history"]
    client = {"does": "produce", "topic": "orders"}
    name = control.call("POST", f"/v1/history/{history}/clients", client)["name"]
    slow = control.fault("slow_disk", target, latency=100)
    again = "the disk of broker-\\d is slow already"
    with pytest.raises(ControlError, match=again):
        control.fault("slow_disk", target, latency=50)
    assert "writes and flushes took 100 ms longer" in control.end_fault(slow["id"])["effect"]
    jump = control.fault("clock_jump", target, by=-3600)
    assert "its clock was -3600 s off" in control.end_fault(jump["id"])["effect"]
    control.call("DELETE", f"/v1/history/{history}/clients/{name}")
