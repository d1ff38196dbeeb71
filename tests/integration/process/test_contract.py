"""A contract on topics that a plain kafka-python producer wrote, by DuckDB and by Spark."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from kafka import KafkaProducer

from highwater.cli.verify import verify
from highwater.cluster.ports import free_ports
from highwater.verdict.by_spark import spark_submit
from tests.background import BackgroundCluster

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "contract.md"

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]


def example(number: int, folder: Path) -> Path:
    """The page's contracts, as files."""
    text = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)[number]
    file = folder / "contract.yaml"
    file.write_text(text)
    return file


def send(bootstrap: str, topic: str, *records: tuple[str, dict[str, Any]], **fields: Any) -> None:
    """In this order, each acknowledged before the next."""
    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all", **fields)
    transactional = "transactional_id" in fields
    if transactional:
        producer.init_transactions()
        producer.begin_transaction()
    for key, value in records:
        producer.send(topic, json.dumps(value).encode(), key.encode()).get(30)
    if transactional:
        producer.abort_transaction()
    producer.close()


def numbered(*numbers: int, key: str = "ada") -> list[tuple[str, dict[str, Any]]]:
    return [(key, {"number": n, "id": f"{key}{n}"}) for n in numbers]


def run(file: Path, bootstrap: str, *more: str) -> Result:
    arguments = ["--contract", str(file), "--bootstrap", bootstrap, *more]
    return CliRunner().invoke(verify, arguments)


def said(done: Result) -> list[str]:
    """The offenders."""
    return [line for line in done.output.splitlines() if re.match(r"K\d+: ", line)]


def shown(number: int) -> list[str]:
    """A block of the page's output: the first one is of the example of numbers."""
    blocks = re.findall(r"```\n(K.*?)```", PAGE.read_text(), re.DOTALL)
    return blocks[number - 1].splitlines()


@pytest.mark.spark
def test_a_gap_a_repeat_and_a_swap_are_named_by_both_engines(
    background: BackgroundCluster, tmp_path: Path
) -> None:
    bootstrap = background.bootstrap_servers
    background.create_topic("orders", partitions=1)
    send(bootstrap, "orders", *numbered(1, 2, 4, 4), *numbered(1, key="bob"), *numbered(6, 5, 7))
    aborted = numbered(7)
    send(bootstrap, "orders", *aborted, transactional_id="aborts")
    file = example(0, tmp_path)
    settings = tmp_path / "client.properties"
    settings.write_text("client.id=contracts\nsecurity.protocol=PLAINTEXT\n")
    asked = ("--command-config", str(settings))
    by_duckdb = run(file, bootstrap, *asked, "--json", str(tmp_path / "duckdb.json"))
    assert by_duckdb.exit_code == 1, by_duckdb.output
    assert said(by_duckdb) == shown(1)
    by_spark = submit(file, bootstrap, tmp_path, *asked)
    assert by_spark.returncode == 1, by_spark.stdout + by_spark.stderr
    one, two = (json.loads((tmp_path / f"{e}.json").read_text()) for e in ("duckdb", "spark"))
    assert one["checks"] == two["checks"]
    assert one["records"] == two["records"] == {"orders": 8}
    dirty = json.loads(json.dumps({"topics": {"orders": {"must": "monotonic time"}}}))
    dirty["isolation"] = "read_uncommitted"
    file = tmp_path / "dirty.json"
    file.write_text(json.dumps(dirty))
    done = run(file, bootstrap)
    assert done.stdout.startswith("9 records, and the contract is kept"), done.output


def submit(
    file: Path, bootstrap: str, folder: Path, *more: str
) -> subprocess.CompletedProcess[str]:
    spark = spark_submit.find()
    quick = ["--driver-java-options", spark_submit.QUICK_JAVA, "--conf", "spark.ui.enabled=false"]
    command = [str(spark.home / "bin" / "spark-submit"), "--master", "local[2]", *quick]
    command += [*spark_submit.connector_arguments(print), str(ROOT / "spark" / "contract.py")]
    command += [str(file), "--bootstrap", bootstrap, "--out", str(folder / "spark.json"), *more]
    return subprocess.run(
        command,
        env={**os.environ, **spark.environment()},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_pipeline_that_repeats_one_and_loses_one(
    background: BackgroundCluster, tmp_path: Path
) -> None:
    """The second example of the page."""
    bootstrap = background.bootstrap_servers
    for topic in ("payments", "bookings"):
        background.create_topic(topic, partitions=1)
    payments = [("ada", {"id": f"p{n}", "cents": n}) for n in range(4)]
    send(bootstrap, "payments", *payments)
    send(bootstrap, "bookings", *(payments[n] for n in (0, 1, 3)))
    file = example(1, tmp_path)
    file.write_text(file.read_text().replace("within_s: 30", "within_s: 0.001"))
    done = run(file, bootstrap)
    assert done.exit_code == 1, done.output
    assert set(shown(3)) < set(said(done))
    assert "K10: bookings-0 offset 0: is " in done.output
    assert "K6: bookings-0 offset 2: the amounts of key ada up to here sum to 4" in done.output
    file = example(1, tmp_path)
    send(bootstrap, "bookings", payments[2], payments[2])
    done = run(file, bootstrap)
    assert done.exit_code == 1, done.output
    assert said(done) == shown(2)


def test_a_topic_that_does_not_exist_is_one_line(
    background: BackgroundCluster, tmp_path: Path
) -> None:
    file = tmp_path / "contract.json"
    file.write_text('{"topics": {"nowhere": {"must": "monotonic time"}}}')
    done = run(file, background.bootstrap_servers)
    assert done.exit_code == 3
    bootstrap = background.bootstrap_servers
    assert (
        done.output == f"highwater: {bootstrap} has no topic nowhere, or this user may not see it\n"
    )


def test_why_no_broker_is_reached_is_told_at_once(tmp_path: Path) -> None:
    file = tmp_path / "contract.json"
    file.write_text('{"topics": {"orders": {"must": "monotonic time"}}}')
    dead = f"127.0.0.1:{free_ports(1)[0]}"
    started = time.monotonic()
    done = run(file, dead)
    assert time.monotonic() - started < 10, "librdkafka would take twenty seconds"
    assert done.exit_code == 3
    assert done.output.startswith(f"highwater: {dead}: Nothing listens on {dead}: start the broker")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_speaks_tls, args=(listener,), daemon=True).start()
        place = f"127.0.0.1:{listener.getsockname()[1]}"
        done = run(file, place)
    assert (done.exit_code, done.output) == (
        3, f"highwater: {place}: The listener speaks TLS: security.protocol=SSL or SASL_SSL\n",
    )  # fmt: skip


def _speaks_tls(listener: socket.socket) -> None:
    """Answers the first bytes of plain text with a TLS alert, as a TLS listener does."""
    with suppress(OSError):  # until it is closed
        while True:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(bytes.fromhex("15030300020246"))
