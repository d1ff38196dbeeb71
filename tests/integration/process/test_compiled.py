"""The wheel with compiled modules: it serves, and they pass the tests of their files."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from highwater.cluster.ports import free_ports
from highwater.machine_code import COMPILED, finds_compiler
from tests.integration.process.building import ROOT, build, install, run

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600), pytest.mark.slow]

LOG = "tests/unit/broker/log"
TESTS = (
    *("tests/unit/highwater/kafka/wire", f"{LOG}/cleaner", f"{LOG}/test_cleaner_crash.py"),
    *(f"{LOG}/test_log.py", f"{LOG}/test_producers.py", f"{LOG}/test_transactions.py"),
)
"""Of the compiled modules, and of what reads and writes batches by them."""
OTHERS = "not test_a_broker_runs_on_the_codecs_alone"  # which looks at the folders of a clone
MODULES = [f"highwater.{name.replace('/', '.')}" for name in COMPILED]
_LOOK = """
import importlib, sys
for name in sys.argv[2:]:
    file = importlib.import_module(name).__file__
    assert file.startswith(sys.argv[1]) and file.endswith(".so"), file
assert not {"mypy", "mypyc", "mypy_extensions", "librt", "setuptools"} & set(sys.modules)
"""


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the packages of an environment with this wheel."""
    folder = tmp_path_factory.mktemp("compiled")
    wheel = build("wheel", folder / "dist", HIGHWATER_COMPILE="")
    assert not wheel.name.endswith("-none-any.whl")
    found = install(wheel, folder)
    tops = {path.name for path in found.iterdir() if path.suffix not in (".dist-info", ".pth")}
    assert tops == {"highwater"}
    return found


def _python(packages: Path) -> Path:
    return packages.parents[2] / "bin" / "python"


def test_a_wheel_is_compiled_unasked_where_a_compiler_is(
    packages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = run(_python(packages), "-I", "-m", "highwater.cli.main", "--version", cwd=packages)
    assert told.strip().endswith("compiled modules")
    assert finds_compiler()
    monkeypatch.setenv("CC", "no-such-compiler")
    assert not finds_compiler()


def test_every_named_module_is_compiled_and_needs_no_compiler(packages: Path) -> None:
    run(_python(packages), "-I", "-c", _LOOK, packages, *MODULES, cwd=packages)


def test_compiled_modules_pass_the_tests_of_their_files(packages: Path, tmp_path: Path) -> None:
    shutil.copytree(
        ROOT / "tests", tmp_path / "tests", ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    look = "import highwater.kafka.wire.records as it; print(it.__file__)"
    own = {"PYTHONPATH": str(packages)}  # before an editable installation of the clone
    assert run(_python(packages), "-c", look, cwd=tmp_path, **own).strip().endswith(".so")
    run(_python(packages), "-m", "pytest", *TESTS, "-k", OTHERS, cwd=tmp_path, **own)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="it looks into /proc")
def test_a_cluster_of_it_serves(packages: Path, tmp_path: Path) -> None:
    highwater = (_python(packages), "-I", "-m", "highwater.cli.main")
    port = str(free_ports(1)[0])
    folder = ("--dir", tmp_path / "cluster")
    told = run(
        *highwater, "up", "--detach", "--brokers", "1", "--port", port, *folder, cwd=tmp_path
    )
    try:
        assert f"127.0.0.1:{port}" in told
        (maps,) = Path("/proc").glob(f"{_broker(tmp_path)}/maps")
        assert str(packages / "highwater" / "compiled__mypyc") in maps.read_text()
    finally:
        run(*highwater, "down", *folder, cwd=tmp_path)


def _broker(folder: Path) -> int:
    """The process of the broker whose properties are in the folder."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_text()
        except OSError:
            continue
        if "highwater.broker" in command and str(folder) in command:
            return int(process.name)
    raise AssertionError("no broker runs")
