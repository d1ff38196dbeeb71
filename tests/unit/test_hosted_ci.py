"""The file for hosted CI calls scripts that are there, with options that they have."""

from __future__ import annotations

import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOW: dict[str, Any] = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())


def steps() -> Iterator[dict[str, Any]]:
    for job in WORKFLOW["jobs"].values():
        yield from job["steps"]


@pytest.mark.parametrize("command", [step["run"] for step in steps() if "run" in step])
def test_its_commands_are_the_projects_scripts(command: str) -> None:
    script, *options = shlex.split(command)
    assert (ROOT / script).stat().st_mode & 0o111, script
    if options:
        told = subprocess.run([ROOT / script, "--help"], capture_output=True, text=True, check=True)
        assert not [o for o in options if o.startswith("--") and o not in told.stdout]


def test_each_job_has_a_time_limit_and_each_action_a_version() -> None:
    assert all(0 < job["timeout-minutes"] <= 90 for job in WORKFLOW["jobs"].values())
    assert all("@v" in step["uses"] for step in steps() if "uses" in step)
    assert all({"run", "uses"} & step.keys() for step in steps())


def test_its_pythons_are_those_of_the_package() -> None:
    package = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = {c.rpartition(" ")[2] for c in package["classifiers"] if ":: 3." in c}
    assert set(WORKFLOW["jobs"]["checks"]["strategy"]["matrix"]["python"]) <= named
    assert f">={min(named, key=lambda v: int(v[2:]))}" in package["requires-python"]
