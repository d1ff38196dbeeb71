"""The containers of compose.yaml: health, restarts, volumes, configuration by the environment,
Spark."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from highwater.verdict import runner
from tests.planted.stories import PLANTS
from tests.planted.story import write

pytestmark = [pytest.mark.integration, pytest.mark.compose]
Run = Callable[..., "subprocess.CompletedProcess[str]"]
ComposeStack = Callable[..., AbstractContextManager[Any]]
ROOT = Path(__file__).parents[3]
BROKERS = ("broker-1", "broker-2", "broker-3")


@pytest.fixture(scope="module")
def stack(compose_stack: ComposeStack) -> Iterator[Any]:
    with compose_stack("compose") as running:
        yield running


def produce(kcat: Run, stack: Any, topic: str, lines: list[str]) -> None:
    done = kcat(
        *("-P", "-b", stack.bootstrap, "-t", topic, "-p", "0", "-X", "acks=all"),
        stdin="".join(f"{line}\n" for line in lines),
    )
    assert done.returncode == 0, done.stderr


def consume(kcat: Run, stack: Any, topic: str) -> list[str]:
    done = kcat(
        *("-C", "-b", stack.bootstrap, "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q")
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def health(stack: Any) -> dict[str, str]:
    rows = stack.compose("ps", "--all", "--format", "json").stdout.splitlines()
    found = [json.loads(row) for row in rows]
    return {row["Service"]: row["Health"] or row["State"] for row in found}


def test_up_returns_when_all_are_healthy_and_the_broker_is_compiled_and_not_root(
    stack: Any,
) -> None:
    assert health(stack) == dict.fromkeys(("zookeeper", *BROKERS), "healthy")
    assert stack.compose("exec", "-T", "broker-1", "id", "-u").stdout.strip() == "1000"
    look = "from highwater.kafka.wire.compiled import compiled; print(compiled())"
    done = stack.compose("exec", "-T", "broker-1", "python", "-I", "-c", look)
    assert done.stdout.strip() == "True"


def test_the_health_check_fails_for_a_broker_that_is_not_there(stack: Any) -> None:
    check = ("exec", "-T", "broker-1", "python", "-I", "-m", "highwater.cli.healthcheck")
    assert stack.compose(*check, "127.0.0.1:9092", "1").returncode == 0
    done = stack.compose(*check, "127.0.0.1:9092", "7", check=False)
    assert done.returncode == 1
    assert "broker 7 is not among the live brokers [1, 2, 3]" in done.stdout
    assert stack.compose(*check, "127.0.0.1:9999", check=False).returncode == 1


def test_a_killed_broker_comes_back_on_its_port_with_its_data(stack: Any, kcat: Run) -> None:
    lines = [f"line {n}" for n in range(200)]
    produce(kcat, stack, "killed", lines[:100])
    stack.compose("kill", "broker-2")
    produce(kcat, stack, "killed", lines[100:])
    assert consume(kcat, stack, "killed") == lines
    stack.compose("up", "--detach", "--wait", "broker-2")
    assert health(stack)["broker-2"] == "healthy"
    port = stack.ports[1]
    listed = json.loads(kcat("-L", "-J", "-b", f"127.0.0.1:{port}").stdout)
    assert {b["id"] for b in listed["brokers"]} == {1, 2, 3}
    assert consume(kcat, stack, "killed") == lines


@pytest.mark.timeout(300)
def test_any_project_is_a_target_of_chaos(stack: Any, tmp_path: Path) -> None:
    """The leader dies alone with records of acks=1, and the run sees that loss."""
    out, faults = tmp_path / "run", tmp_path / "faults.json"
    schedule = [{"name": "wait", "until": "healthy"}, {"name": "lose_unreplicated"}]
    faults.write_text(json.dumps(schedule))
    options = ["--duration=2", "--rate=20", "--seed=1", "--engine=duckdb", f"--faults={faults}"]
    done = stack.highwater("chaos", "--target=compose:compose.yaml", f"--out={out}", *options)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    verdict = json.loads((out / "verdict.json").read_text())
    assert (verdict["verdict"], verdict["expected_losses"] > 0) == ("valid", True)
    assert health(stack).keys() == {"zookeeper", *BROKERS}
    wrong = stack.highwater("chaos", "--target=compose:compose.yaml", "--service=zookeeper")
    assert wrong.returncode == 3
    assert "no listener without TLS and login names brokers" in wrong.stderr


def test_data_outlives_the_containers(stack: Any, kcat: Run) -> None:
    lines = [f"line {n}" for n in range(300)]
    produce(kcat, stack, "kept", lines)
    stack.compose("down", "--timeout", "20")
    stack.compose("up", "--detach", "--wait")
    assert consume(kcat, stack, "kept") == lines


def test_a_listener_that_does_not_parse_is_one_clear_line(stack: Any) -> None:
    done = stack.compose(
        *("run", "--rm", "--no-deps", "-T", "-e", "KAFKA_LISTENERS=INTERNAL:19092", "broker-1"),
        check=False,
    )
    assert done.returncode == 2
    complaints = [line for line in done.stderr.splitlines() if "listeners" in line]
    assert len(complaints) == 1
    assert "INTERNAL:19092" in complaints[0]
    assert "Traceback" not in done.stdout + done.stderr


def test_a_file_is_read_and_the_environment_wins(stack: Any, tmp_path: Path) -> None:
    """As Apache Kafka's image does it: /mnt/shared/config/server.properties, then KAFKA_*."""
    (tmp_path / "server.properties").write_text("num.io.threads=nonsense\nlisteners=nonsense\n")
    tmp_path.chmod(0o755)  # the broker's user has to be able to read it
    done = stack.compose(
        *("run", "--rm", "--no-deps", "-T", "-v", f"{tmp_path}:/mnt/shared/config:ro", "broker-1"),
        check=False,
    )
    assert done.returncode == 2
    assert "num.io.threads" in done.stderr
    assert "listeners=" not in done.stderr


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.rare
def test_spark_reads_a_topic_through_the_internal_listener(
    compose_stack: ComposeStack, kcat: Run
) -> None:
    with compose_stack("spark", profiles=["spark"]) as stack:
        produce(kcat, stack, "read", [f"line {n}" for n in range(1000)])
        job = stack.compose(
            *("--profile", "spark", "run", "--rm", "-T", "spark-submit"),
            *("/opt/highwater/spark/ingest.py", "--bootstrap", "broker-1:19092"),
            *("--topics", "read", "--out", "/runs/consumed"),
        )
        assert "1000" in job.stdout + job.stderr
        written = list((Path(stack.environment["RUNS"]) / "consumed").glob("*.parquet"))
        assert written

        import duckdb

        rows = duckdb.sql(
            f"select count(distinct value) from read_parquet({list(map(str, written))})"
        )
        assert rows.fetchall() == [(1000,)]


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.rare
def test_a_worker_that_is_killed_costs_no_verdict(compose_stack: ComposeStack) -> None:
    """The command of docs/spark.md, on two workers; one of them dies when a check has ended."""
    services = ["spark-master", "spark-worker"]
    with compose_stack("workers", profiles=["spark"], services=services) as stack:
        run = Path(stack.environment["RUNS"]) / "7"
        plants = [plant for plant in PLANTS if plant.name in ("clean", "lost-at-the-end")]
        write(run, plants)
        by_duckdb = runner.run(run, "duckdb", lambda line: None)
        workers = stack.compose("ps", "--quiet", "spark-worker").stdout.split()
        assert len(workers) == 2
        job = ["docker", "compose", "--profile", "spark", "run", "--rm", "-T", "spark-submit"]
        job += ["/opt/highwater/spark/verify.py", "/runs/7"]
        environment = {**os.environ, **stack.environment}
        killed = False
        with subprocess.Popen(
            job, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
        ) as child:
            assert child.stdout is not None
            for line in child.stdout:
                if not killed and " of 26 " in line:
                    subprocess.run(["docker", "kill", workers[0]], check=True, capture_output=True)
                    killed = True
            assert child.wait(60) == 1
        assert killed
        by_spark = json.loads((run / "verdict.json").read_text())
        assert by_spark["spark"]["master"] == "spark://spark-master:7077"
        for id_, check in by_duckdb.checks.items():
            assert by_spark["checks"][id_]["violations"] == check.violations, id_
