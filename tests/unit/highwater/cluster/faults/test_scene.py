"""Schedules are checked before anything starts: a misspelled name costs no run."""

from __future__ import annotations

from typing import Any

import pytest

from highwater.cluster.faults.fault_model import ScheduleError
from highwater.cluster.faults.scene import Scene
from highwater.cluster.faults.schedule_form import check, parse
from highwater.cluster.interface import CLIENT_MESSAGES

TOPICS = {"safe": 3, "lossy": 1}
HOLD = {"name": "hold", "api": "Fetch"}
CUT = {"name": "cut", "from": "broker-1"}


def refused(*entries: dict[str, Any]) -> str:
    with pytest.raises(ScheduleError) as error:
        check(parse(list(entries), "f.json"), Scene((1, 2, 3), TOPICS))
    return str(error.value)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (
            {"name": "kill", "target": "brokr-2"},
            "no target 'brokr-2'; there are zookeeper, clients",
        ),
        ({"name": "kill", "target": "broker-7"}, "no member 'broker-7'; there are zookeeper"),
        ({"name": "kill", "target": "leader of save-0"}, "no partition 'save-0'; there are safe-0"),
        ({"name": "kill", "target": "leader of safe-3"}, "no partition 'safe-3'"),
        ({"name": "kill", "target": "$L"}, "no earlier fault is called 'L'"),
        ({"name": "kill", "target": "broker other than $L"}, "no earlier fault is called 'L'"),
        ({"name": "kill", "target": "clients"}, "clients are no member"),
        ({"name": "kill", "target": "followers of safe-0"}, "write follower of TP"),
        ({"name": "kill"}, "it needs 'target'"),
        ({"name": "kill", "target": "1", "rate": 3}, "it has no field 'rate'"),
        ({"name": "isolate", "target": "zookeeper"}, "zookeeper is no broker"),
        ({"name": "restart", "target": "1", "how": "kil"}, "how: 'kil' is none of kill, stop"),
        ({"name": "slow_disk", "target": "1"}, "it needs 'latency'"),
        ({"name": "slow_disk", "target": "1", "latency": 0}, "0 ms longer changes nothing"),
        ({"name": "disk_full", "target": "zookeeper"}, "zookeeper is no broker"),
        ({"name": "clock_jump", "target": "1", "by": 0}, "by: 0 s off is not off"),
        ({"name": "clock_jump", "target": "1", "by": "1 h"}, "by: '1 h' is no number of seconds"),
        ({"name": "kill_all", "target": "1"}, "it takes no target: leave out '1'"),
        ({"name": "swap_leader", "target": "broker-1"}, "no partition 'broker-1'"),
        (
            {"name": "swap_leader", "target": "safe-0", "leader": 9},
            "leader: no broker 9; there are 1",
        ),
        ({"name": "swap_leader", "target": "safe-0", "for": 3}, "leave out 'for'"),
        ({**CUT, "to": "zookeper"}, "to: no target 'zookeper'"),
        ({**CUT, "to": "broker-1"}, "both are 'broker-1'"),
        ({**CUT, "one_way": "yes"}, "one_way: 'yes' is neither true nor false"),
        ({"name": "cut", "to": "broker-1"}, "it needs 'from'"),
        ({"name": "cut", "from": "other brokers"}, "no target 'other brokers'"),
        ({**HOLD, "api": "Fetsch"}, "api: no API 'Fetsch'; there are AddOffsetsToTxn"),
        ({**HOLD, "to": "zookeeper"}, "ZooKeeper has no operation 'Fetch'; there are check"),
        ({**HOLD, "api": "setData", "from": "1", "to": "2"}, "'setData' is ZooKeeper's"),
        ({**HOLD, "path": "/x"}, "Fetch has no path"),
        ({**HOLD, "api": "setData", "path": "("}, "path: '(' is no regular expression"),
        ({**HOLD, "side": "answer"}, "side: 'answer' is none of request, response"),
        ({**HOLD, "count": -1}, "count: -1 is no whole number"),
        ({"name": "hold"}, "it needs 'api'"),
        ({"name": "release", "rule": "late"}, "no earlier hold or drop is called 'late'"),
        ({"name": "wait", "until": "helthy"}, "until 'helthy' is not understood; write healthy"),
        ({"name": "wait", "until": "isr of save-0 is 2"}, "no partition 'save-0'"),
        ({"name": "wait", "until": "leader of safe-0 is not $L"}, "no earlier fault is called 'L'"),
        ({"name": "bind", "target": "contoller"}, "no target 'contoller'"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_is_named_with_what_can(entry: dict[str, Any], said: str) -> None:
    told = refused(entry)
    assert told.startswith(f"f.json, fault 1 ({entry['name']}): ")
    assert said in told
    assert "\n" not in told


def test_messages_of_clients_over_tls_cannot_be_held() -> None:
    lacks = {CLIENT_MESSAGES: "clients come over TLS"}
    for name in ("hold", "drop"):
        entry = parse([{**HOLD, "name": name, "from": "leader of safe-0", "to": "clients"}], "f")
        check(entry, Scene((1, 2, 3), TOPICS))
        with pytest.raises(ScheduleError, match="over TLS: cut, latency, bandwidth and reset_peer"):
            check(entry, Scene((1, 2, 3), TOPICS, lacks=lacks))
    between = [{**HOLD, "from": "leader of safe-0", "to": "follower of safe-0"}]
    check(parse(between, "f"), Scene((1, 2, 3), TOPICS, lacks=lacks))


def test_the_entry_is_named() -> None:
    trogdor = {"class": "ProcessStopFaultSpec", "nodeNames": ["node1", "node9"]}
    fine = {"name": "kill", "target": "controller", "as": "L"}
    assert refused(fine, trogdor).startswith("f.json, fault 2 (pause): no member 'broker-9'")


def test_a_name_holds_for_later_entries_only() -> None:
    fine: list[dict[str, Any]] = [
        {"name": "hold", "api": "Fetch", "to": "follower of safe-0", "as": "late"},
        {"name": "release", "rule": "late", "arrive": True},
    ]
    check(parse(fine), Scene((1, 2, 3), TOPICS))
    assert "no earlier hold or drop" in refused(*reversed(fine))
