"""The package without the clone: built, installed into an environment of its own, and used.

The project that uses it has packages `broker` and `controller` of its own, at its root and among
the installed ones.  They fail when they are imported, so Highwater must not take them for its own.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from highwater.cluster.ports import free_ports
from highwater.cluster.serving import view
from highwater.verdict import catalog
from highwater.verdict.by_spark import spark_submit
from tests.integration.process.building import ROOT, install, run
from tests.integration.process.test_pytest_plugin import page
from tests.planted.stories import PLANTS
from tests.planted.story import write

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and, by a path alone, the packages that it depends on."""
    folder = tmp_path_factory.mktemp("installed")
    packages = install(wheel, folder)
    for place in (packages, folder):
        for name in ("broker", "controller"):
            (place / name).mkdir()
            (place / name / "__init__.py").write_text(f"raise RuntimeError('the user's {name}')\n")
    return folder


def test_it_owns_one_name(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.partition("/")[0] for name in archive.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"highwater"}


def test_its_pages_are_there_offline(installed: Path) -> None:
    command = (installed / "venv" / "bin" / "python", "-m", "highwater.cli.main", "docs")
    listed = run(*command, cwd=installed).splitlines()
    named = sorted(line.split()[0] for line in listed if line.startswith("  "))
    told = (ROOT / "docs" / "README.md").read_text().partition("## About")[0]
    assert named == sorted(re.findall(r"(?m)^- \[([\w-]+)\.md\]", told))
    assert len(named) > 15
    assert run(*command, "docs/rules.md", cwd=installed) == (ROOT / "docs" / "rules.md").read_text()


@pytest.mark.parametrize("module", ["highwater.broker", "highwater.cli.main"])
def test_entry_points_take_no_module_of_the_users(installed: Path, module: str) -> None:
    python = installed / "venv" / "bin" / "python"
    assert "--help" in run(python, "-m", module, "--help", cwd=installed)


def test_ours_decode_with_the_copy_in_the_wheel_or_not_at_all(installed: Path) -> None:
    python = installed / "venv" / "bin" / "python"
    decoding = "import highwater.kafka.wire.messages, kafka; print(kafka.__path__[0])"
    where = run(python, "-I", "-c", decoding, cwd=installed).strip()
    assert where.endswith("/highwater/_vendor/python/kafka")
    assert str(installed) in where
    late = "import kafka, highwater.kafka.wire"  # the environment's own
    refused = subprocess.run([python, "-I", "-c", late], capture_output=True, text=True)
    assert "run Highwater in a process of its own" in refused.stderr


ALONE = """\
import fcntl, os, socket, struct, sys
with socket.socket() as one:  # a new namespace's loopback is down
    fcntl.ioctl(one, 0x8914, struct.pack("16sh14x", b"lo", 0x1 | 0x40))
os.execv(sys.argv[1], sys.argv[1:])
"""


def alone(installed: Path, script: str, within_s: float = 200) -> str:
    """What a shell script prints that has neither Java nor Maven nor a network, but `highwater`."""
    tools = installed / "tools"
    if not tools.exists():
        tools.mkdir()
        for name in ("cat", "sh"):
            (tools / name).symlink_to(shutil.which(name) or "")
        python = installed / "venv" / "bin" / "python"
        (tools / "highwater").write_text(
            f'#!/bin/sh\nexec {python} -I -m highwater.cli.main "$@"\n'
        )
        (tools / "highwater").chmod(0o755)
    bare = {"PATH": str(tools), "HOME": str(installed), "LANG": "C.UTF-8"}
    done = subprocess.run(
        ["/usr/bin/unshare", "--user", "--map-root-user", "--net", sys.executable, "-c", ALONE,
         "/bin/sh", "-ec", script],
        cwd=installed, env=bare, capture_output=True, text=True, timeout=within_s,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_cluster_with_nothing_but_python(installed: Path) -> None:
    told = alone(
        installed,
        """
        highwater up --detach --dir cluster
        trap 'highwater down --delete --dir cluster' EXIT
        highwater topic create orders --dir cluster
        highwater fault kill zookeeper --for 0.5 --dir cluster
        echo one | highwater topic produce orders --dir cluster
        highwater fault kill 'leader of orders-0' --for 0.5 --dir cluster
        highwater topic consume orders --count 1 --within 20 --dir cluster
        highwater fault mend --dir cluster
        highwater status --json status.json --dir cluster
        """,
    )
    assert "(embedded)" in told
    assert re.search(r"\bone\b", told)
    status = json.loads((installed / "status.json").read_text())
    assert status["zookeeper"]["kind"] == "embedded"
    assert [m["listening"] for m in status["members"].values()] == [True] * 4


def test_a_demo_with_nothing_but_python(installed: Path) -> None:
    told = alone(installed, "highwater demo --seed 7 --duration 10 --out demo")
    assert "verdict   valid" in told
    assert "(checked by duckdb)" in told
    assert "checked by DuckDB alone: Spark needs Java 17 or later" in told
    assert "the brokers' ZooKeeper was Highwater's (embedded)" in told


def test_the_page_with_nothing_but_python(installed: Path) -> None:
    """The tests of docs/pytest.md, a warning in which is an error, too."""
    project = installed / "project"
    project.mkdir()
    (project / "pytest.ini").write_text("[pytest]\n")
    (project / "test_page.py").write_text(page())
    strict = "--strict-markers -W error -p no:cacheprovider -p no:trio"
    python = installed / "venv" / "bin" / "python"
    told = alone(installed, f"cd project; {python} -m pytest {strict} --durations=13", 280)
    assert re.search(r"= 12 passed in ", told), told


@pytest.mark.compose
@pytest.mark.slow
@pytest.mark.rare  # test_package compares each file with the clone, whose containers have tests
def test_containers_run_from_the_package(installed: Path, tmp_path: Path) -> None:
    stand_ins = (ROOT / ".env").read_text() if (ROOT / ".env").exists() else ""
    settings = dict(re.findall(r"^(\w+)=(.*)$", stand_ins, re.MULTILINE))
    settings |= {"HIGHWATER_CACHE": str(tmp_path / "cache")}
    highwater = (installed / "venv" / "bin" / "python", "-m", "highwater.cli.main")
    where = ("--dir", str(tmp_path / "cluster"))
    free = set(free_ports(60))
    first = min(port for port in free if {port + 1, port + 2} <= free)
    up = ("up", "--runtime", "compose", "--detach", "--port", str(first))
    try:
        run(*highwater, *up, *where, cwd=installed, **settings)
        ports = range(first, first + 3)
        assert [sorted(view("127.0.0.1", port).brokers) for port in ports] == [[1, 2, 3]] * 3
    finally:
        run(*highwater, "down", "--delete", *where, cwd=installed, **settings)


def test_the_checks_and_spark_jobs_are_in_the_package(installed: Path) -> None:
    python = installed / "venv" / "bin" / "python"
    names = "import highwater, pathlib; p = pathlib.Path(highwater.__file__).parent / 'spark'; "
    found = run(python, "-c", names + "print(*sorted(f.name for f in p.rglob('*')))", cwd=installed)
    for name in ("ingest.py", "verify.py", "C4.sql"):
        assert name in found.split()


def test_the_package_finds_its_checks(installed: Path) -> None:
    """Beside its jobs' modules; test_spark_alone has a whole job of the same files."""
    python = installed / "venv" / "bin" / "python"
    counted = "from highwater.verdict import catalog; "
    counted += "from highwater.verdict.by_spark import spark_job; "
    counted += "print(len(catalog.checks()), bool(catalog.views()), spark_job.__file__)"
    *told, place = run(python, "-I", "-c", counted, cwd=installed).split()
    assert told == [str(len(catalog.checks())), "True"]
    assert str(installed) in place
    (job,) = installed.glob("venv/lib/python3*/site-packages/highwater/spark/verify.py")
    assert "spark-submit spark/verify.py runs/7" in run(python, job, "--help", cwd=installed)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.rare
def test_spark_submit_runs_the_job_of_the_package(installed: Path, tmp_path: Path) -> None:
    write(tmp_path / "run", [plant for plant in PLANTS if plant.name == "clean"])
    spark = spark_submit.find()
    quick = ("--driver-java-options", spark_submit.QUICK_JAVA)
    (job,) = installed.glob("venv/lib/python3*/site-packages/highwater/spark/verify.py")
    done = subprocess.run(
        [spark.home / "bin" / "spark-submit", *quick, job, tmp_path / "run"],
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
    told = run(python, "-m", "pytest", "--fixtures", "-p", "no:cacheprovider", cwd=installed)
    assert re.search(r"^kafka -- .*highwater/pytest_plugin", told, re.MULTILINE)
