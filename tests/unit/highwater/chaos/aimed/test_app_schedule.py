"""The faults that a seed makes of an application's promises, and the checks of a schedule."""

from __future__ import annotations

import pytest

from highwater.chaos.aimed import probes
from highwater.chaos.aimed.app_schedule import generate
from highwater.chaos.faults.workload_verbs import FORMS
from highwater.cluster.faults.fault_model import Fault, ScheduleError
from highwater.cluster.faults.forms import Scene

SCENE = Scene((1, 2, 3), {"orders": 3, "invoices": 3}, apps=("app", "app-2"))


def generated(seed: int, exactly_once: bool) -> list[Fault]:
    copies = ("app", "app-2")
    return generate(seed, 20.0, "orders", "app", copies, exactly_once=exactly_once)


@pytest.mark.parametrize("seed", range(5))
def test_each_promise_has_its_probe_whatever_the_seed(seed: int) -> None:
    demanded = {
        False: {("kill", "ahead"), ("lose_unreplicated", None)},
        True: {
            ("kill", "ahead"),
            ("lose_unreplicated", None),
            ("kill", "behind"),
            ("kill", "ending"),
        },
    }
    for exactly_once, wanted in demanded.items():
        schedule = generated(seed, exactly_once)
        required = [f for f in schedule if not f.optional]
        assert wanted <= {(f.name, f.params.get("when")) for f in required}
        assert {"pause", "kill"} <= {f.name for f in required if "when" not in f.params}
        probes.check(schedule, SCENE)
    assert generated(seed, True) == generated(seed, True) != generated(seed + 1, True)


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (Fault("kill", "app", params={"when": "soon"}), "'soon' is none of ahead, behind, ending"),
        (
            Fault("kill", "broker-1", params={"when": "ahead"}),
            "'broker-1' is no copy; there are app",
        ),
        (Fault("stop", "app", params={"when": "ahead"}), "when"),
        (Fault("burst"), "burst"),
    ],
)
def test_what_makes_no_sense_is_refused_before_the_start(fault: Fault, told: str) -> None:
    with pytest.raises((ScheduleError, KeyError), match=told):
        probes.check([fault], SCENE)


def test_any_copy_is_a_target_only_where_there_are_copies() -> None:
    probes.check([Fault("kill", "any copy")], SCENE)
    with pytest.raises(ScheduleError, match="no target"):
        probes.check([Fault("kill", "any copy")], Scene((1,), {"orders": 1}))
    assert "when" not in FORMS["kill"].fields
