"""`highwater up`, `status`, `down`: the commands, their output, and no process left behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from kafka import KafkaProducer

from highwater.child_processes import Pid
from highwater.cluster.ports import free_ports
from tests.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
HIGHWATER = [sys.executable, "-I", "-m", "highwater.cli.main"]
HELPFUL = (
    "up", "down", "status", "fault", "demo", "chaos", "verify", "report", "sim", "bench",
    "doctor", "topic",
)  # fmt: skip
Up = tuple[Path, list[str]]


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    """A folder, and the options of a cluster of two brokers there; none of its processes runs
    afterwards."""
    folder = tmp_path / "cluster"
    first = next(p for p in free_ports(40) if _free(p, p + 1))
    yield folder, ["--brokers=2", f"--port={first}", f"--dir={folder}"]
    subprocess.run([*HIGHWATER, "down", f"--dir={folder}"], check=True, capture_output=True)
    assert not alive(folder)


def _free(*ports: int) -> bool:
    for port in ports:
        with socket.socket() as sock:
            if sock.connect_ex(("127.0.0.1", port)) == 0:
                return False
    return True


def run(*arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*HIGHWATER, *arguments], capture_output=True, text=True, check=False, **more
    )


def state(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "state.json").read_text())
    return found


def alive(folder: Path) -> list[str]:
    processes = state(folder)["processes"] if (folder / "state.json").exists() else {}
    return [name for name, raw in processes.items() if Pid.from_json(raw).alive()]


def wait_until_gone(folder: Path, listed: dict[str, Any], within_s: float = 60) -> None:
    eventually(
        lambda: not any(Pid.from_json(raw).alive() for raw in listed.values()),
        "all processes end",
        lambda: alive(folder),
        within_s,
    )


def test_up_detached_status_down_and_up_again_on_the_same_ports(up: Up) -> None:
    folder, options = up
    done = run("up", "--detach", *options)
    assert done.returncode == 0, done.stderr
    assert "bootstrap servers  127.0.0.1:" in done.stdout
    assert sorted(alive(folder)) == ["broker-1", "broker-2", "zookeeper"]
    ports = state(folder)["ports"]
    addresses = [f"127.0.0.1:{ports[number]['metrics']}" for number in ("1", "2")]
    assert f"metrics, traces    {', '.join(addresses)} " in done.stdout
    for address in addresses:
        with urllib.request.urlopen(f"http://{address}/readyz", timeout=60) as answer:
            assert answer.status == 200
    status = run("status", f"--dir={folder}", f"--json={folder / 'status.json'}")
    assert status.returncode == 0, status.stdout
    members = json.loads((folder / "status.json").read_text())["members"]
    assert all(member["listening"] for member in members.values())
    assert [members[f"broker-{n}"]["metrics"] for n in (1, 2)] == addresses
    assert all(f"metrics {address}" in status.stdout for address in addresses)

    assert json.loads(run("status", f"--dir={folder}", "--json=-").stdout)["members"] == members

    again = run("up", *options)
    assert again.returncode == 1
    assert "a cluster is running in" in again.stderr
    assert len(again.stderr.strip().splitlines()) == 1

    listed = state(folder)["processes"]
    assert run("down", f"--dir={folder}").stdout.strip() == "stopped"
    wait_until_gone(folder, listed)
    assert run("status", f"--dir={folder}").returncode == 1
    assert run("up", "--detach", *options).returncode == 0
    assert state(folder)["ports"] == ports
    assert (folder / "broker-1" / "data" / "meta.properties").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_process_outlives_the_supervisor(up: Up, number: signal.Signals) -> None:
    folder, options = up
    supervisor = subprocess.Popen([*HIGHWATER, "up", *options], stdout=subprocess.PIPE, text=True)
    assert supervisor.stdout is not None
    assert "serve after" in supervisor.stdout.readline()
    listed = state(folder)["processes"]
    assert len(listed) == 3
    os.kill(supervisor.pid, number)
    supervisor.wait(30)
    supervisor.stdout.close()
    wait_until_gone(folder, listed)


def test_a_port_in_use_is_one_clear_line(up: Up) -> None:
    folder, options = up
    port = int(options[1].partition("=")[2])
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", port))
        taken.listen(1)
        done = run("up", *options)
    assert done.returncode == 1
    assert done.stderr.strip().splitlines() == [
        f"highwater: port {port} (a broker's port) is in use on 127.0.0.1:"
        " stop what listens there, or give other ports"
    ]
    assert not alive(folder)


def test_of_two_clusters_started_at_once_on_one_port_exactly_one_serves(
    up: Up, tmp_path: Path
) -> None:
    _, options = up
    folders = tmp_path / "one", tmp_path / "other"
    started = [
        subprocess.Popen(
            [*HIGHWATER, "up", "--detach", *options[:-1], f"--dir={folder}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for folder in folders
    ]
    try:
        said = [process.communicate(timeout=120) for process in started]
        codes = [process.returncode for process in started]
        assert sorted(codes) == [0, 1], said
        winner = codes.index(0)
        port = options[1].removeprefix("--port=")
        (line,) = said[1 - winner][1].splitlines()
        # it names the other's folder, unless that has just begun
        assert line.startswith(f"highwater: port {port} (a broker's port) is taken by "), line
        assert line.endswith(", or give another --port"), line
        assert run("status", f"--dir={folders[winner]}").returncode == 0
        assert not alive(folders[1 - winner])
    finally:
        for folder in folders:
            run("down", f"--dir={folder}")


def test_no_java_is_one_clear_line(up: Up) -> None:
    _, options = up
    environment = {**os.environ, "PATH": "/nowhere"}
    environment.pop("JAVA_HOME", None)
    done = run("up", *options, "--zookeeper=java", env=environment)
    assert done.returncode == 1
    assert "no Java found: install Java 17 or later" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_bad_fault_file_is_one_clear_line(tmp_path: Path) -> None:
    path = tmp_path / "faults.json"
    path.write_text('[{"name": "explode"}]')
    done = run("chaos", f"--faults={path}", f"--out={tmp_path / 'run'}")
    assert done.returncode == 3
    assert "fault 1: no verb 'explode'" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_help_and_an_example_for_every_command() -> None:
    assert run("--help").returncode == 0
    for command in HELPFUL:
        done = run(command, "--help")
        assert done.returncode == 0, done.stderr
        assert f"highwater {command}" in done.stdout.split("Options:")[0].split("Example", 1)[1]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_cut_short_leaves_nothing_behind(
    tmp_path: Path, number: signal.Signals
) -> None:
    out = tmp_path / "run"
    process = subprocess.Popen(
        [*HIGHWATER, "chaos", "--seed=1", "--duration=60", "--engine=duckdb", f"--out={out}"],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "faults are injected" in line:
            break
    children = psutil.Process(process.pid).children(recursive=True)
    assert len(children) >= 5, "ZooKeeper, three brokers, the workload"
    os.kill(process.pid, number)
    code = process.wait(40)
    said = process.stderr.read()
    process.stderr.close()
    _, left = psutil.wait_procs(children, timeout=60)
    assert left == []
    if number is not signal.SIGKILL:
        assert code == 3
        assert "stopped before it was over: no verdict" in said
    judged = run("verify", str(out), "--engine=duckdb", "--no-report")
    assert judged.returncode == 2, judged.stdout
    assert "void: the run was interrupted before everything was read back" in judged.stdout


def test_broker_properties_on_the_command_line(up: Up) -> None:
    folder, options = up
    sets = ("--set", "num.partitions=7", "--set", "min.insync.replicas=1")
    assert run("up", "--detach", *options, *sets).returncode == 0
    port = next(word for word in options if word.startswith("--port=")).removeprefix("--port=")
    admin = AdminClient(
        {"bootstrap.servers": f"127.0.0.1:{port}", "allow.auto.create.topics": True}
    )
    deadline = time.monotonic() + 20
    while (
        len(admin.list_topics("made-by-asking", timeout=60).topics["made-by-asking"].partitions)
        != 7
    ):
        assert time.monotonic() < deadline, (folder / "broker-1" / "output.log").read_text()
    reached = run("doctor", f"--bootstrap=127.0.0.1:{port}", "--topic=made-by-asking")
    assert reached.returncode == 1, reached.stderr
    assert "broker 2 answers at its advertised address 127.0.0.1:" in reached.stderr
    assert "LOSES           topic made-by-asking: min.insync.replicas=1" in reached.stdout
    by_tls = run("doctor", f"--bootstrap=127.0.0.1:{port}", "--set=security.protocol=SSL")
    assert "The listener does not speak TLS." in by_tls.stdout
    wrong = run("up", *options, "--set", "num.partitions")
    assert wrong.returncode == 2
    assert "'num.partitions' is not NAME=VALUE" in wrong.stderr


def test_a_secured_cluster_with_the_files_of_its_clients(up: Up) -> None:
    folder, options = up
    done = run("up", "--detach", "--secure", *options)
    assert done.returncode == 0, done.stderr

    def client(user: str) -> AdminClient:
        lines = (folder / "secure" / f"{user}.conf").read_text().splitlines()
        return AdminClient(dict(line.split("=", 1) for line in lines))

    admin, alice = client("admin"), client("alice")
    assert f"127.0.0.1:{options[1].partition('=')[2]}" in done.stdout
    with pytest.raises(KafkaException, match="AUTHORIZATION_FAILED"):
        alice.create_topics([NewTopic("letters", 1, 2)])["letters"].result(30)
    admin.create_topics([NewTopic("letters", 1, 2)])["letters"].result(30)
    assert "letters" not in alice.list_topics(timeout=10).topics
    rule = AclBinding(
        ResourceType.TOPIC, "letters", ResourcePatternType.LITERAL, "User:alice", "*",
        AclOperation.WRITE, AclPermissionType.ALLOW,
    )  # fmt: skip
    admin.create_acls([rule])[rule].result(30)
    eventually(
        lambda: "letters" in alice.list_topics(timeout=10).topics,
        "every broker follows: alice sees her topic",
        within_s=20,
    )
    python = json.loads((folder / "secure" / "alice.json").read_text())
    producer = KafkaProducer(**python, acks="all")
    assert producer.send("letters", b"a").get(30).offset == 0
    producer.close()
    assert (folder / "secure").stat().st_mode & 0o077 == 0
    for file in ("alice.properties", "alice.conf"):
        examined = run("doctor", str(folder / "secure" / file), "--connect", "--topic=letters")
        assert "answers at its advertised address" in examined.stderr, examined.stdout
        assert "CANNOT CONNECT" not in examined.stdout
        missing = run("doctor", str(folder / "secure" / file), "--connect", "--topic=nowhere")
        assert "CANNOT BE USED" in missing.stdout
        assert "CANNOT CONNECT" not in missing.stdout
    refused = run(
        "doctor", str(folder / "secure" / "alice.conf"), "--connect", "--set=sasl.password=wrong"
    )
    assert "The broker refuses user alice" in refused.stdout
    password = json.loads((folder / "secure" / "users.json").read_text())["alice"]
    written = [p for p in folder.rglob("*.log") if password in p.read_text(errors="replace")]
    assert written == []


def test_status_tells_what_is_wrong(up: Up) -> None:
    """Also where clients of a secured cluster find its brokers, not where the harness does."""
    folder, options = up
    port = int(options[1].partition("=")[2])
    assert run("up", "--detach", "--secure", *options).returncode == 0
    well = run("status", f"--dir={folder}")
    rows = [line.split() for line in well.stdout.splitlines()]
    assert [row[2] for row in rows[1:3]] == [f"127.0.0.1:{port}", f"127.0.0.1:{port + 1}"]
    assert [row[-1] for row in rows].count("controller") == 1
    assert "no leader" not in well.stdout
    words = ("topic", "create", "alone", "--partitions=2", "--replication-factor=1")
    assert run(*words, f"--dir={folder}").returncode == 0
    assert run("fault", "kill", "leader of alone-1", f"--dir={folder}").returncode == 0
    broken = run("status", f"--dir={folder}")
    assert broken.returncode == 1
    assert "fault 1     kill broker-" in broken.stdout
    (line,) = (line for line in broken.stdout.splitlines() if line.startswith("no leader"))
    assert "alone-1" in line
    assert "alone-0" not in line
    told = json.loads(run("status", f"--dir={folder}", "--json=-").stdout)
    assert told["faults"][0]["name"] == "kill"
    assert "alone-1" in told["leaderless"]


def test_users_of_scram_are_there_before_the_brokers(up: Up, tmp_path: Path) -> None:
    folder, options = up
    (tmp_path / "users.txt").write_text('SCRAM-SHA-256=[name=dave,password="from-file,-s3cret"]\n')
    given = "SCRAM-SHA-512=[name=carol,password=from-option-s3cret]"
    environment = "SCRAM-SHA-256=[name=erin,password=from-environment-s3cret]"
    words = ("--secure", "--add-scram", given, f"--add-scram=@{tmp_path}/users.txt")
    done = run(
        "up", "--detach", *options, *words, env={**os.environ, "HIGHWATER_ADD_SCRAM": environment}
    )
    assert done.returncode == 0, done.stderr
    lines = (folder / "secure" / "admin.conf").read_text().splitlines()
    base = dict(line.split("=", 1) for line in lines)
    admins = base["sasl.password"]
    for user, mechanism, password in (
        ("carol", "SCRAM-SHA-512", "from-option-s3cret"),
        ("dave", "SCRAM-SHA-256", "from-file,-s3cret"),
        ("erin", "SCRAM-SHA-256", "from-environment-s3cret"),
        ("admin", "SCRAM-SHA-512", admins),
    ):
        login = {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": password}
        assert len(AdminClient(base | login).list_topics(timeout=20).brokers) == 2
    said = [" ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"])]
    assert any(str(folder) in line for line in said)
    assert [line for line in said if "-s3cret" in line] == []
    told = [p for p in folder.rglob("*") if p.is_file() and b"-s3cret" in p.read_bytes()]
    assert told == []
    told = [p for p in folder.rglob("*") if p.is_file() and admins.encode() in p.read_bytes()]
    assert told
    assert [p for p in told if p.stat().st_mode & 0o077] == []


def test_a_malformed_user_of_scram_is_one_line() -> None:
    wrong = run("up", "--add-scram", "SCRAM-SHA-256=[name=carol,pasword=s3cret]")
    assert wrong.returncode == 2
    assert "no field 'pasword'; there are name, password" in wrong.stderr
    assert "s3cret" not in wrong.stderr
    wrong = run("up", "--add-scram", "@/nowhere")
    assert "/nowhere: No such file or directory" in wrong.stderr
