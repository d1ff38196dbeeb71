"""spark/simulate.py takes every workload and fault of `highwater sim`."""

from __future__ import annotations

import dataclasses
import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from highwater.simulation.options import Options
from highwater.simulation.part_list import SWITCHES
from highwater.simulation.seeds import as_arguments


@pytest.fixture(scope="module")
def script() -> ModuleType:
    path = Path(__file__).parents[4] / "spark" / "simulate.py"
    spec = importlib.util.spec_from_file_location("spark_simulate", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", SWITCHES)
def test_each_switch_is_taken(script: ModuleType, name: str) -> None:
    usual = Options(seconds=3.0, pace=0.3, faults=False)
    switched: Any = {name: True}
    options = dataclasses.replace(usual, **switched)
    words = " ".join(["--seeds 4..6 --out run.jsonl", *as_arguments(options)]).split()
    assert script.arguments(words) == (range(4, 7), Path("run.jsonl"), options)


def test_without_flags_it_is_a_plain_run(script: ModuleType) -> None:
    assert script.arguments(["--seeds", "7", "--out", "o"]) == (range(7, 8), Path("o"), Options())


def test_a_pace_out_of_range_is_refused(
    script: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        script.arguments(["--seeds", "7", "--out", "o", "--pace", "0"])
    assert "--pace 0: give a number from 0.01 to 100" in capsys.readouterr().err
