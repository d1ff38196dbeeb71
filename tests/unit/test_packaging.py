"""The shipped parts fit together: the image has the broker's imports, all pins agree."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import hatch_build
from highwater import machine_code
from highwater.cli.main import EXTRAS

ROOT = Path(__file__).parents[2]
BROKER = ("broker", "controller", "highwater/base", "highwater/kafka", "highwater/world")
HEALTH_CHECK = ("highwater/cli/healthcheck.py", "highwater/cluster/serving.py")
IMPORTS = (ast.Import, ast.ImportFrom)
OURS = {"highwater"}
MAY_LACK = {"pyyaml"}
"""Packages that a job imports only where it needs them, with an error that names them."""
DISTRIBUTION_OF = {"jwt": "pyjwt", "kafka": "kafka-python", "yaml": "pyyaml"}


@cache
def imports(path: Path) -> list[ast.AST]:
    return [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, IMPORTS)]


def third_party(files: Iterator[Path]) -> dict[str, Path]:
    """Distributions that these files import, each with a file that does."""
    found: dict[str, Path] = {}
    for path in files:
        for node in imports(path):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module or ""]
            for name in (full.partition(".")[0] for full in names):
                if name not in OURS and name not in sys.stdlib_module_names:
                    found[DISTRIBUTION_OF.get(name, name)] = path
    return found


def reached_from(path: Path) -> Iterator[Path]:
    """The file, and all of ours that it imports, and they import."""
    todo, seen = [path], {path}
    while todo:
        here = todo.pop()
        yield here
        for node in imports(here):
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            else:
                continue
            for name in names:
                place = ROOT.joinpath(*name.split("."))
                for file in (place.with_suffix(".py"), place / "__init__.py"):
                    if file.is_file() and file not in seen:
                        seen.add(file)
                        todo.append(file)


def pins(path: Path) -> dict[str, str]:
    return dict(re.findall(r"^([\w.-]+)==([\w.]+)", path.read_text(), re.MULTILINE))


@pytest.mark.thorough
def test_the_broker_image_installs_what_the_broker_imports_and_no_more() -> None:
    imported = third_party(path for folder in BROKER for path in (ROOT / folder).rglob("*.py"))
    lines = (ROOT / "docker/broker/requirements.in").read_text().splitlines()
    installed = {line for line in lines if not line.startswith("#")}
    # kazoo uses pure-sasl where it is there
    assert installed - {"pure-sasl"} == set(imported), imported


def test_the_health_check_needs_the_standard_library_alone() -> None:
    assert third_party(ROOT / name for name in HEALTH_CHECK) == {}


def test_the_job_for_spark_submit_needs_pyspark_and_the_standard_library_alone() -> None:
    for job in ("verify", "contract", "ingest", "generate"):
        files = list(reached_from(ROOT / "spark" / f"{job}.py"))
        assert (job in ("verify", "contract")) == any(f.name == "verdict.py" for f in files), files
        assert set(third_party(iter(files))) <= {"pyspark", "py4j", "ingest"} | MAY_LACK


@pytest.mark.parametrize("image", ["broker", "cluster", "compiler", "spark"])
def test_images_are_pinned_as_the_lock_file_pins(image: str) -> None:
    locked = pins(ROOT / "requirements.lock")
    pinned = pins(ROOT / f"docker/{image}/requirements.txt")
    assert pinned
    assert {name: locked.get(name) for name in pinned} == pinned


def test_every_dependency_of_the_project_is_locked() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    declared = [
        *project["project"]["dependencies"],
        *(d for extra in project["project"]["optional-dependencies"].values() for d in extra),
        *project["dependency-groups"]["dev"],
        *project["build-system"]["requires"],
    ]
    names = {re.split(r"[\[<>=~ ]", line)[0] for line in declared}
    assert names - set(pins(ROOT / "requirements.lock")) == set()


def test_nothing_that_a_demo_needs_is_installed_after_it_begins() -> None:
    found = re.search(r'^later="([^"]*)"', (ROOT / "scripts" / "setup").read_text(), re.M)
    assert found is not None
    later = {*found[1].split(), "pyspark", "py4j"}
    assert later - set(pins(ROOT / "requirements.lock")) == set()
    needed, todo = set(), [("highwater-kafka", "harness"), ("highwater-kafka", "")]
    todo += [("hatchling", ""), ("editables", ""), ("kafka-python", "")]  # install the clone itself
    while todo:
        name, extra = todo.pop()
        needed.add(name)
        for line in metadata.requires(name) or []:
            requirement = Requirement(line)
            wanted = requirement.marker is None or requirement.marker.evaluate({"extra": extra})
            if wanted and requirement.name.lower() not in needed:
                todo.append((requirement.name.lower(), ""))
    assert needed & later == set()


@pytest.mark.thorough
def test_what_the_package_imports_is_what_it_declares_and_carries() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    declared = [*project["dependencies"], *(d for extra in extras.values() for d in extra)]
    names = {re.split(r"[\[<>=~ ]", line)[0] for line in declared}
    rooms = ("highwater", "broker", "controller", "spark")
    imported = third_party(path for room in rooms for path in (ROOT / room).rglob("*.py"))
    named = {name.replace("_", "-") for name in imported} - {"py4j", "ingest", "pytest", "pyyaml"}
    # kafka-python uses crc32c, and kazoo pure-sasl; testcontainers is for users' tests
    assert named - {"kafka-python"} == names - {
        *("crc32c", "pure-sasl", "testcontainers", "pyyaml"),
        "py-spy",  # a program
        "google-re2",  # imported when the first regular expression comes
    }


def test_each_package_of_an_extra_is_named_where_it_is_missing() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    found = {
        re.split(r"[\[<>=~ ]", line)[0].replace("-", "_"): name
        for name, lines in extras.items()
        for line in lines
    }
    found["jwt"] = found.pop("pyjwt")  # whose import has another name
    found["re2"] = found.pop("google_re2")
    del found["py_spy"]  # a program, not imported: `bench cpu` looks for it
    assert found == EXTRAS


def test_the_wheel_carries_the_kafka_python_that_is_locked() -> None:
    carried = hatch_build.kafka_python()  # its version and checksum are right
    assert len(carried) > 250
    unused = [name.rstrip("/").removesuffix(".py") for name in hatch_build.UNUSED]
    modules = [name.replace("/", ".") for name in unused]
    for file, name in carried.items():
        if name.endswith(".py") and not name.endswith("__main__.py"):
            text = Path(file).read_text().replace(*hatch_build.OTHER_LINES.get(name, ("", "")))
            assert [module for module in modules if f"from {module}" in text] == [], name
    assert pins(ROOT / "requirements.lock")["kafka-python"] == hatch_build.KAFKA_PYTHON
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    assert f"kafka-python=={hatch_build.KAFKA_PYTHON}" in build
    assert f"mypy=={pins(ROOT / 'requirements.lock')['mypy']}" in hatch_build.COMPILER_PACKAGES


def test_both_images_compile_in_one_stage_which_is_built_once() -> None:
    """The engine takes a stage from its cache where each line is the same."""
    stages = [
        (ROOT / file).read_text().split("FROM ${BASE_IMAGE} AS ")[1]
        for file in ("Dockerfile", "docker/cluster/Dockerfile")
    ]
    assert stages[0].startswith("compiled")


def test_an_unknown_setting_of_the_compiler_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for setting, wanted in (("1", True), ("0", False), ("", True)):
        monkeypatch.setenv(machine_code.COMPILE, setting)
        assert machine_code.compiles() is wanted
    monkeypatch.setenv(machine_code.COMPILE, "yes")
    with pytest.raises(ValueError, match="HIGHWATER_COMPILE=yes: set it to 1"):
        machine_code.compiles()
