"""spark/verify.py as people start it: a clone or a zip, PySpark and Java, and any master."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import venv
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from highwater.cluster.ports import free_ports
from highwater.verdict import catalog, runner
from highwater.verdict.by_spark import spark_submit
from tests.planted.stories import PLANTS
from tests.planted.story import write

ROOT = Path(__file__).parents[3]
CHECKS = len(catalog.checks())
BY_NAME = {plant.name: plant for plant in PLANTS}
SKIPPED = shutil.ignore_patterns("__pycache__", "*.pyc")

pytestmark = [
    pytest.mark.integration,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(400),
]


@dataclass(frozen=True, slots=True)
class Bare:
    """A Python with PySpark, and nothing else: no Highwater, no DuckDB."""

    home: Path
    environment: dict[str, str]

    def command(self, *arguments: str | Path) -> list[str]:
        quick = ("--driver-java-options", spark_submit.QUICK_JAVA)
        submit = [str(self.home / "bin" / "spark-submit"), *quick]
        return [*submit, *map(str, arguments)]

    def submit(self, *arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments),
            env=self.environment,
            cwd=cwd,
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Bare:
    spark = spark_submit.find()
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, with_pip=False, symlinks=True)
    (packages,) = folder.glob("lib/python3*/site-packages")
    for name in ("pyspark", "py4j"):
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        (packages / name).symlink_to(Path(spec.origin).parent)
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    environment |= {
        "SPARK_HOME": str(spark.home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": str(folder / "bin" / "python"),
        "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
    }
    done = subprocess.run(
        [folder / "bin" / "python", "-c", "import pyspark, duckdb"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "No module named 'duckdb'" in done.stderr
    return Bare(spark.home, environment)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """These two folders as `git clone` brings them."""
    for name in ("highwater", "spark"):
        shutil.copytree(ROOT / name, tmp_path / "clone" / name, ignore=SKIPPED)
    return tmp_path / "clone"


@pytest.fixture
def planted(tmp_path: Path) -> Callable[..., Path]:
    def plant(*names: str) -> Path:
        write(tmp_path / "run", [BY_NAME[name] for name in names])
        return tmp_path / "run"

    return plant


def test_a_bare_clone_finds_a_planted_loss_and_ends_with_1(
    bare: Bare, clone: Path, planted: Callable[..., Path]
) -> None:
    run = planted("clean", "lost-at-the-end")
    done = bare.submit("spark/verify.py", run, cwd=clone)
    assert done.returncode == 1, done.stdout + done.stderr
    assert " INFO " not in done.stderr
    assert len(done.stderr.splitlines()) < 10, done.stderr
    assert f"{CHECKS} of {CHECKS}" in done.stdout
    assert "invalid  (checked by spark)" in done.stdout
    assert "C4: " in done.stdout
    assert "is in no read" in done.stdout
    by_spark = json.loads((run / "verdict.json").read_text())
    by_duckdb = runner.run(run, "duckdb", lambda line: None)
    for id_, check in by_duckdb.checks.items():
        assert by_spark["checks"][id_]["violations"] == check.violations, id_
        assert by_spark["checks"][id_]["examined"] == check.examined, id_
        assert by_spark["checks"][id_]["examples"] == check.examples, id_


@pytest.mark.rare
def test_a_zip_by_py_files_is_enough(
    bare: Bare, clone: Path, planted: Callable[..., Path], tmp_path: Path
) -> None:
    """As a driver within a cluster finds it: verify.py, and the zip that docs/spark.md makes."""
    shutil.make_archive(str(tmp_path / "highwater"), "zip", clone)
    alone = tmp_path / "alone"
    alone.mkdir()
    shutil.move(clone / "spark" / "verify.py", alone)
    shutil.rmtree(clone)
    run = planted("clean")
    done = bare.submit("--py-files", tmp_path / "highwater.zip", "verify.py", run, cwd=alone)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.rare
def test_an_executor_that_is_killed_costs_no_verdict(
    bare: Bare, planted: Callable[..., Path]
) -> None:
    run = planted("clean", "lost-at-the-end")
    command = bare.command("--master", "local-cluster[2,1,1024]", "spark/verify.py", run)
    with subprocess.Popen(
        command, env=bare.environment, cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as child:
        killed = 0
        assert child.stdout is not None
        for line in child.stdout:
            if not killed and re.search(r" of 26 ", line):
                executor = executors_of(child.pid)[0]
                executor.kill()
                executor.wait(30)
                killed = executor.pid
        assert child.wait(60) == 1
    assert killed
    verdict = json.loads((run / "verdict.json").read_text())
    assert verdict["spark"]["master"] == "local-cluster[2,1,1024]"
    by_duckdb = runner.run(run, "duckdb", lambda line: None)
    assert verdict["checks"]["C4"]["violations"] == by_duckdb.checks["C4"].violations


def executors_of(pid: int) -> list[psutil.Process]:
    """The executors of a local cluster: Java programs below spark-submit."""
    backend = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
    below = psutil.Process(pid).children(recursive=True)
    return [p for p in below if backend in p.as_dict(["cmdline"], ad_value=[])["cmdline"]]


@pytest.fixture
def standalone(bare: Bare, tmp_path: Path) -> Iterator[str]:
    """A master and a worker of one core, as scripts/ of Spark start them; the master's address."""
    port, *pages = free_ports(3)
    url = f"spark://127.0.0.1:{port}"
    place = ("--host", "127.0.0.1", "--webui-port")
    deploy = "org.apache.spark.deploy"
    commands = [
        (f"{deploy}.master.Master", *place, str(pages[0]), "--port", str(port)),
        (f"{deploy}.worker.Worker", *place, str(pages[1]), "-c", "1", "-m", "1g", url),
    ]
    children = []
    try:
        for command in commands:
            with (tmp_path / f"{command[0]}.log").open("wb") as log:
                children.append(
                    subprocess.Popen(
                        [bare.home / "bin" / "spark-class", *command],
                        env=bare.environment | {"SPARK_WORKER_DIR": str(tmp_path / "work")},
                        stdout=log,
                        stderr=subprocess.STDOUT,
                        start_new_session=True,
                    )
                )
        yield url
    finally:
        for child in children:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()


@pytest.mark.rare
def test_a_standalone_master_gives_the_same_verdict(
    bare: Bare, standalone: str, planted: Callable[..., Path]
) -> None:
    run = planted("clean")
    done = bare.submit(
        "--master", standalone, "--executor-memory", "512m", "spark/verify.py", run, cwd=ROOT
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads((run / "verdict.json").read_text())["spark"]["master"] == standalone


def test_the_watch_goes_on_where_it_ended_and_tells_nothing_twice(
    bare: Bare, tmp_path: Path
) -> None:
    write(tmp_path / "run", [BY_NAME["idempotent-copies"]])
    history = tmp_path / "run" / "history.jsonl"
    first = bare.submit(ROOT / "spark" / "watch.py", tmp_path / "run", cwd=tmp_path)
    assert first.returncode == 1, first.stdout + first.stderr
    assert re.search(r"^C2 t00-idempotent-copies-0 offset 7: stands at", first.stdout, re.MULTILINE)

    write(tmp_path / "more", [BY_NAME["clean"]])
    with history.open("ab") as file:
        file.write((tmp_path / "more" / "history.jsonl").read_bytes())
    job = (ROOT / "spark" / "watch.py", tmp_path / "run", "--seconds", "0")
    second = bare.submit(*job, cwd=tmp_path)
    assert second.returncode == 1, "a promise of this run was broken, if not just now"
    assert "C2" not in second.stdout, second.stdout
    count = len(history.read_bytes().splitlines())
    assert f"watch: {count} lines" in second.stdout.splitlines()[-1], second.stdout
    assert len((tmp_path / "run" / "watch" / "alarms.jsonl").read_text().splitlines()) == 1


@pytest.mark.rare
def test_a_folder_without_a_history_cannot_be_watched(bare: Bare, tmp_path: Path) -> None:
    done = bare.submit(ROOT / "spark" / "watch.py", tmp_path, cwd=tmp_path)
    assert done.returncode == 3, done.stdout
    assert f"watch: {tmp_path} holds no history.jsonl and no run.json" in done.stdout
