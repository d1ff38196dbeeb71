"""The package without the clone: built, installed into an environment of its own, and used."""

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

from highwater.chaos.clusters.ports import free_ports

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
    with zipfile.ZipFile(wheel) as archive:  # what pip does with a wheel of pure Python
        archive.extractall(packages)
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return folder


def test_up_status_and_down(installed: Path) -> None:
    highwater = (installed / "venv" / "bin" / "python", "-m", "highwater.cli.main")
    where = run(
        installed / "venv" / "bin" / "python", "-c", "import broker; print(broker.__file__)",
        cwd=installed,
    )  # fmt: skip
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


def test_pytest_knows_the_fixture(installed: Path) -> None:
    python = installed / "venv" / "bin" / "python"
    assert "highwater_cluster" in run(
        python, "-m", "pytest", "--fixtures", "-p", "no:cacheprovider", cwd=installed
    )
