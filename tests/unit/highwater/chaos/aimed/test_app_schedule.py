"""The faults that a seed makes of an application's promises, and the checks of a schedule."""

from __future__ import annotations

import pytest

from highwater.chaos.aimed import app_verbs
from highwater.chaos.aimed.app_schedule import generate
from highwater.cluster.faults.fault_model import Fault, ScheduleError
from highwater.cluster.faults.scene import Scene
from highwater.cluster.faults.schedule_form import check, parse
from highwater.cluster.faults.verb_table import VERBS

SCENE = Scene((1, 2, 3), {"orders": 3, "invoices": 3}, apps=("app", "app-2"))


def generated(seed: int, exactly_once: bool) -> list[Fault]:
    copies = ("app", "app-2")
    return generate(seed, 20.0, "orders", "app", copies, exactly_once=exactly_once)


@pytest.mark.parametrize("seed", range(5))
def test_each_promise_has_its_probe_whatever_the_seed(seed: int) -> None:
    always = {("kill", "ahead"), ("lose_unreplicated", None), ("refuse_output", None)}
    always |= {("reorder_output", None)}
    once = {("kill", "behind"), ("kill", "ending"), ("pause", "behind")}
    demanded = {False: always, True: always | once}
    for exactly_once, wanted in demanded.items():
        schedule = generated(seed, exactly_once)
        required = [f for f in schedule if not f.optional]
        assert wanted <= {(f.name, f.params.get("when")) for f in required}
        assert {"pause", "kill"} <= {f.name for f in required if "when" not in f.params}
        check(schedule, SCENE, app_verbs.VERBS)
    plain = generate(
        seed, 60.0, "orders", "app", ("app",), exactly_once=True, ordered=False, errors=False
    )
    assert {"refuse_output", "reorder_output"}.isdisjoint(f.name for f in plain)
    assert "behind" not in {f.params.get("when") for f in plain if f.name == "pause"}
    sevenfold = [fault for one in range(7) for fault in generated(7 * seed + one, True)]
    moves = [f.params for f in sevenfold if f.target.startswith("coordinator")]
    assert {} in moves
    assert {"when": "behind"} in moves
    assert generated(seed, True) == generated(seed, True) != generated(seed + 1, True)


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ({"name": "kill", "target": "app", "when": "soon"}, "'soon' is none of ahead, behind"),
        ({"name": "kill", "target": "broker-1", "when": "ahead"}, "'broker-1' is no copy; there"),
        ({"name": "stop", "target": "app", "when": "ahead"}, "has no field 'when'"),
        ({"name": "burst"}, "no verb 'burst'"),
        ({"name": "refuse_output", "target": "broker-1"}, "'broker-1' is no copy"),
        ({"name": "reorder_output"}, "it needs 'target'"),
    ],
)
def test_what_makes_no_sense_is_refused_before_the_start(entry: dict[str, str], told: str) -> None:
    with pytest.raises(ScheduleError, match=told):
        check(parse([entry], verbs=app_verbs.VERBS), SCENE, app_verbs.VERBS)


def test_copies_are_there_only_beside_an_application() -> None:
    kill = [Fault("kill", "any copy")]
    check(kill, SCENE, app_verbs.VERBS)
    with pytest.raises(ScheduleError, match="no target"):
        check(kill, Scene((1,), {"orders": 1}))
    assert VERBS["kill"].fields == ()
