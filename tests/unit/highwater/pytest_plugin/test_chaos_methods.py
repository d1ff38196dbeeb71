"""The fixture `chaos` has a typed method for each verb, and each says what the verb's row says."""

from __future__ import annotations

import inspect
from typing import Any, Literal, cast, get_args, get_origin, get_type_hints

import pytest

from highwater.cluster.faults.fault_model import Fault
from highwater.cluster.faults.scene import Scene
from highwater.cluster.faults.schedule_form import check_one
from highwater.cluster.faults.verb_row import Field
from highwater.cluster.faults.verb_table import FAULTS
from highwater.pytest_plugin import Chaos
from highwater.pytest_plugin.chaos_fixture import Target

ENTRY: dict[str, Any] = {"target": 1, "other": 2, "source": 1, "to": "zookeeper", "topic": "safe"}
"""Arguments that name members and partitions, and no field."""
NAMES = {"kib_per_s": "rate", "latency_ms": "latency", "jitter_ms": "jitter", "by_s": "by"}
"""Parameters whose names end with the unit."""
LEFT_OUT = {
    "release": {"rule", "arrive"},
    "swap_leader": {"not"},
    "reset_peer": {"one_way"},
}
"""Fields that only schedules, the command line and the control API have."""
SAMPLES: dict[Any, Any] = {float: 5.0, int: 2, bool: True, str: "setData"}
OWN: dict[str, dict[str, Any]] = {
    "answer": {"api": "Produce", "error": "INVALID_RECORD", "probability": 0.5, "to": 2}
}
"""Values where the row of a verb does not allow the samples."""


class Recorder:
    """A client of the control API that keeps each fault, and answers that it is over."""

    def __init__(self) -> None:
        self.entry: dict[str, Any] = {}

    def fault(self, name: str, target: str, **fields: Any) -> dict[str, Any]:
        given = {key.removesuffix("_"): v for key, v in fields.items() if v is not None}
        self.entry = {"name": name, "target": target, "params": given}
        return {"id": 1, "name": name, "target": target, "effect": "", "ended": ""}


def methods() -> dict[str, Any]:
    found = inspect.getmembers(Chaos, inspect.isfunction)
    return {name: method for name, method in found if not name.startswith("_")}


def test_each_verb_that_can_be_asked_for_has_a_method() -> None:
    assert methods().keys() == FAULTS.keys()


@pytest.mark.parametrize("name", FAULTS)
def test_a_method_takes_the_fields_of_its_row(name: str) -> None:
    row, method = FAULTS[name], methods()[name]
    hints = get_type_hints(method, localns={"Target": Target})
    fields = {field.name: field for field in row.fields}
    arguments, own = {}, OWN.get(name, {})
    for parameter in list(inspect.signature(method).parameters.values())[1:]:
        hint = hints[parameter.name]
        field = fields.get(NAMES.get(parameter.name, parameter.name))
        if parameter.name in ENTRY:
            arguments[parameter.name] = own.get(parameter.name, ENTRY[parameter.name])
        elif parameter.name == "partition" and field is None:
            assert hint is int
        else:
            assert field is not None, parameter.name
            sample = _sample(field, hint)
            arguments[parameter.name] = own.get(parameter.name, sample)
            if not field.required and parameter.default is not None:
                assert parameter.default == (field.default or 0), parameter.name
            assert (parameter.default is parameter.empty) is field.required, parameter.name
    recorder = Recorder()
    method(Chaos(cast("Any", recorder), lambda: 1), **arguments)
    entry = recorder.entry
    assert entry["name"] == name
    assert entry["params"].keys() == fields.keys() - LEFT_OUT.get(name, set())
    check_one(Fault(**entry), Scene((1, 2, 3), {"safe": 3}), FAULTS)


def _sample(field: Field, hint: Any) -> Any:
    """A value that the row allows, if the parameter's type is the row's."""
    if field.choices:
        assert get_origin(hint) is Literal
        assert get_args(hint) == field.choices
        return field.choices[0]
    kinds = {kind for kind in get_args(hint) or (hint,) if kind is not type(None)}
    assert kinds == {field.type}
    return SAMPLES[field.type]
