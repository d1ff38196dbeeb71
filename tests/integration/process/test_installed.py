"""The package without the clone: built, installed into an environment of its own, and used.

The project that uses it has packages `broker` and `controller` of its own, at its root and among
the installed ones.  They fail when they are imported, so Highwater must not take them for its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from highwater.cluster.ports import free_ports
from highwater.verdict import spark_submit
from tests.planted.stories import PLANTS
from tests.planted.story import write

ROOT = Path(__file__).parents[3]

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


def run(*command: str | Path, cwd: Path) -> str:
    clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, env=clean, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and, by a path alone, the packages that it depends on."""
    folder = tmp_path_factory.mktemp("installed")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=ROOT)
    (wheel,) = folder.glob("*.whl")
    venv.create(folder / "venv", with_pip=False, symlinks=True)
    python = folder / "venv" / "bin" / "python"
    where = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder)
    packages = Path(where.strip())
    with zipfile.ZipFile(wheel) as archive:  # pip does the same with a wheel of pure Python
        archive.extractall(packages)
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    for place in (packages, folder):
        for name in ("broker", "controller"):
            (place / name).mkdir()
            (place / name / "__init__.py").write_text(f"raise RuntimeError('the user's {name}')\n")
    return folder


def test_it_owns_one_name(installed: Path) -> None:
    with zipfile.ZipFile(next(installed.glob("*.whl"))) as archive:
        tops = {name.partition("/")[0] for name in archive.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"highwater"}


@pytest.mark.parametrize("module", ["highwater.broker", "highwater.cli.main"])
def test_entry_points_take_no_module_of_the_users(installed: Path, module: str) -> None:
    python = installed / "venv" / "bin" / "python"
    assert "--help" in run(python, "-m", module, "--help", cwd=installed)


def test_up_status_and_down(installed: Path) -> None:
    highwater = (installed / "venv" / "bin" / "python", "-m", "highwater.cli.main")
    where = run(
        installed / "venv" / "bin" / "python",
        "-c",
        "import highwater.broker; print(highwater.broker.__file__)",
        cwd=installed,
    )
    assert str(installed) in where
    port = free_ports(1)[0]
    cluster = installed / "cluster"
    run(
        *highwater,
        "up",
        "--detach",
        "--brokers",
        "1",
        "--port",
        str(port),
        "--dir",
        cluster,
        cwd=installed,
    )
    try:
        answer = installed / "status.json"
        run(*highwater, "status", "--dir", cluster, "--json", answer, cwd=installed)
        members = json.loads(answer.read_text())["members"]
        assert len(members) == 2
        assert all(member["listening"] for member in members.values())
    finally:
        run(*highwater, "down", "--dir", cluster, cwd=installed)


def test_the_checks_and_spark_jobs_are_in_the_package(installed: Path) -> None:
    python = installed / "venv" / "bin" / "python"
    names = "import highwater, pathlib; p = pathlib.Path(highwater.__file__).parent / 'spark'; "
    found = run(python, "-c", names + "print(*sorted(f.name for f in p.rglob('*')))", cwd=installed)
    for name in ("ingest.py", "verify.py", "C4.sql"):
        assert name in found.split()


@pytest.mark.spark
@pytest.mark.slow
def test_spark_submit_runs_the_job_of_the_package(installed: Path, tmp_path: Path) -> None:
    write(tmp_path / "run", [plant for plant in PLANTS if plant.name == "clean"])
    spark = spark_submit.find()
    (job,) = installed.glob("venv/lib/python3*/site-packages/highwater/spark/verify.py")
    done = subprocess.run(
        [spark.home / "bin" / "spark-submit", job, tmp_path / "run"],
        env=spark.environment() | {"PYSPARK_PYTHON": str(installed / "venv" / "bin" / "python")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "valid  (checked by spark)" in done.stdout


def test_pytest_knows_the_fixture(installed: Path) -> None:
    python = installed / "venv" / "bin" / "python"
    assert "highwater_cluster" in run(
        python, "-m", "pytest", "--fixtures", "-p", "no:cacheprovider", cwd=installed
    )


FAILOVER = """
from pathlib import Path


def test_a_leader_dies(highwater_cluster):
    assert Path("broker").is_dir()
    highwater_cluster.create_topic("orders", partitions=1)
    highwater_cluster.kill(highwater_cluster.leader_of("orders", 0))
"""


def test_a_project_with_packages_of_these_names_uses_the_fixture(installed: Path) -> None:
    (installed / "test_failover.py").write_text(FAILOVER)
    python = installed / "venv" / "bin" / "python"
    told = run(python, "-m", "pytest", "-p", "no:cacheprovider", "test_failover.py", cwd=installed)
    assert "1 passed" in told
