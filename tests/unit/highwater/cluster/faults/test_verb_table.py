"""A verb is one row: all that names verbs is made from it."""

from __future__ import annotations

import random
from typing import Any, cast

import pytest
from click.testing import CliRunner

from highwater.agent.openapi import fault_entry
from highwater.cli.fault import command
from highwater.cluster.faults import verb_table
from highwater.cluster.faults.done import Done
from highwater.cluster.faults.fault_model import Fault, ScheduleError
from highwater.cluster.faults.scene import Scene, Wrong, is_number
from highwater.cluster.faults.schedule_form import check, parse
from highwater.cluster.faults.stage import Stage
from highwater.cluster.faults.verb_row import Field, Kind, Target, Verb
from highwater.cluster.faults.verb_table import FAULTS, VERBS, lacks
from highwater.cluster.remote.remote_cluster import Commands, lacks_of
from tests import verb_tables


async def tickle(stage: Stage, fault: Fault) -> Done:
    return Done(fault.target, f"{fault.params['times']} times with a {fault.params['with']}")


def _no_hammer(scene: Scene, fault: Fault) -> None:
    if fault.params["times"] > 9:
        raise Wrong(f"{fault.params['times']} times is too often")


TOY = Verb(
    "tickle", tickle, "tickles a broker", "it laughs",
    target=Target("a broker", Scene.a_broker), lasts=True, check=_no_hammer,
    fields=(
        Field("with", "the tool", choices=("feather", "straw"), required=True),
        Field("times", "how often", is_number, int, default=3),
        Field("pressure", "how hard", is_number, float, "hPa"),
    ),
    commands=("pause",), cannot={Kind.KRAFT: "a quorum does not laugh"},
)  # fmt: skip
WITH_TOY = {**VERBS, "tickle": TOY}


def told(entry: dict[str, Any], **more: Any) -> str:
    with pytest.raises(ScheduleError) as error:
        check(parse([entry], "f", WITH_TOY), Scene((1, 2, 3), {}, **more), WITH_TOY)
    return str(error.value)


def test_a_schedule_takes_it_and_is_checked_by_its_row() -> None:
    fine = {"name": "tickle", "target": "broker-2", "with": "straw", "for": 2}
    check(parse([fine], "f", WITH_TOY), Scene((1, 2, 3), {}), WITH_TOY)
    assert "no verb 'tickle'; there are kill, stop" in _refusal([fine])
    assert told({**fine, "target": "zookeeper"}).endswith(
        "zookeeper is no broker; name one, or a role"
    )
    assert told({"name": "tickle", "target": "1"}) == "f, fault 1 (tickle): it needs 'with'"
    assert told({**fine, "with": "axe"}).endswith("with: 'axe' is none of feather, straw")
    assert told({**fine, "times": -1}).endswith("times: -1 is no number of 0 or more")
    assert told({**fine, "times": 10}).endswith("10 times is too often")
    assert told({**fine, "by": 1}).endswith("has no field 'by'; it takes with, times, pressure")


def _refusal(schedule: list[dict[str, Any]]) -> str:
    with pytest.raises(ScheduleError) as error:
        parse(schedule)
    return str(error.value)


async def test_its_effect_sees_the_defaults_of_its_fields() -> None:
    nobody = cast("Any", None)
    fault = Fault("tickle", "broker-1", params={"with": "straw"})
    done = await TOY.carry_out(Stage(nobody, nobody, random.Random(1)), fault)
    assert done == Done("broker-1", "3 times with a straw")
    assert fault.params == {"with": "straw"}


def test_the_control_api_describes_it() -> None:
    forms = {form["title"]: form for form in fault_entry({**FAULTS, "tickle": TOY})["oneOf"]}
    assert forms["tickle"]["required"] == ["name", "target", "with"]
    assert forms["tickle"]["properties"] == {
        "name": {"const": "tickle"},
        "target": {"type": "string"},
        "with": {"type": "string", "enum": ["feather", "straw"]},
        "times": {"type": "integer"},
        "pressure": {"type": "number"},
        "for": {"type": "number", "minimum": 0},
        "as": {"type": "string"},
    }
    assert "tickle" not in [form["title"] for form in fault_entry()["oneOf"]]


def test_the_command_line_helps_with_it() -> None:
    said = CliRunner().invoke(command({**FAULTS, "tickle": TOY}), ["--help"], terminal_width=200)
    assert "[OPTIONS] VERB [TARGET]..." in said.output
    assert "tickle (docs/faults.md)" in " ".join(said.output.split())
    for line in (
        "--with [feather|straw] tickle: the tool.",
        "--times INTEGER tickle: how often [default: 3].",
        "--pressure FLOAT tickle: how hard, in hPa.",
    ):
        assert line in " ".join(said.output.split())


def test_a_cluster_lacks_what_its_row_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(verb_table.VERBS, "tickle", TOY)
    assert "tickle" not in lacks(Kind.DOORLESS)
    assert lacks(Kind.KRAFT)["tickle"] == "a quorum does not laugh"
    assert lacks_of(Commands(kill="x"))["tickle"] == "give --pause-command"
    entry = {"name": "tickle", "target": "1", "with": "straw"}
    assert told(entry, lacks=lacks(Kind.KRAFT)).endswith(
        "cannot be done here: a quorum does not laugh"
    )


def test_the_pages_have_it() -> None:
    with_toy = {
        path.stem: verb_tables.render(path.read_text(), WITH_TOY)
        for path in (verb_tables.DOCS / "faults.md", verb_tables.DOCS / "targets.md")
    }
    row = (
        "| `tickle` | a broker, `with`, [`times`], [`pressure`] | tickles a broker | it laughs |\n"
    )
    assert row in with_toy["faults"]
    assert "| `pressure` | `tickle` | how hard, in hPa |\n" in with_toy["faults"]
    assert "| `tickle` | yes | yes | no | by your commands, or Docker's |\n" in with_toy["targets"]


@pytest.mark.parametrize("page", verb_tables.PAGES, ids=lambda page: page.name)
def test_the_tables_on_the_pages_are_made_from_the_rows(page: Any) -> None:
    text = page.read_text()
    assert verb_tables.MARKED.search(text)
    assert text == verb_tables.render(text), "python -m tests.verb_tables"
