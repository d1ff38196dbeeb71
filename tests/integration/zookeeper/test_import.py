"""`highwater zookeeper import`: our server goes on with what Java's has left, and answers alike."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from highwater.agent.client import Control
from highwater.cli.cluster_folder import control_url
from highwater.cluster.ports import free_ports
from highwater.zookeeper import jute
from highwater.zookeeper.jute import Type
from tests.integration.robustness.rig import JavasZooKeeper
from tests.integration.zookeeper.raw_client import Raw, create, path_and
from tests.integration.zookeeper.script import Run, script
from tests.integration.zookeeper.two_servers import server

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


class Java(JavasZooKeeper):
    """Java's, with system properties of a test's own."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.options = options
        super().__init__(folder)

    def prepared(self) -> list[str]:
        java, *rest = super().prepared()
        return [java, *self.options, *rest]

    def end(self, how: signal.Signals = signal.SIGKILL) -> None:
        self.child.signal(how)
        self.child.wait(60)


def highwater(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "highwater.cli.main", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def everything(raw: Raw) -> dict[str, Any]:
    """What the server answers of each znode: to two identities, as some are closed to one."""
    login = jute.number(0) + jute.text("digest") + jute.buffer(b"alice:secret")
    found: dict[str, Any] = {}
    for name in ("nobody", "alice"):
        if name == "alice":
            assert raw.ask(Type.AUTH, login, jute.AUTH_XID)[0] == 0
        waiting = ["/"]
        while waiting:
            path = waiting.pop()
            told = [
                raw.ask(Type.GET_DATA, path_and(path, b"\0")),
                raw.ask(Type.GET_CHILDREN_2, path_and(path, b"\0")),
                raw.ask(Type.GET_ACL, path_and(path)),
            ]
            found[f"{name} {path}"] = told
            code, answer = told[1]
            waiting += [f"{path.rstrip('/')}/{name}" for name in answer[0]] if code == 0 else []
    return found


@contextmanager
def _ended(java: Java) -> Iterator[Java]:
    try:
        yield java
    finally:
        java.end()


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
@pytest.mark.parametrize("snap_count", ["100000", "150"])
def test_our_server_answers_as_javas_did(
    tmp_path: Path, how: signal.Signals, snap_count: str
) -> None:
    options = (f"-Dzookeeper.snapCount={snap_count}",)
    with _ended(Java(tmp_path / "java", *options)) as java:
        run = Run(("127.0.0.1", java.port))
        for step in script(len(snap_count) + how, 1500):
            run.take(step)
        run.come_back()
        sessions = run.sessions
        ephemerals = [raw.ask(Type.GET_EPHEMERALS, path_and("/")) for raw in sessions]
        looks = Raw(("127.0.0.1", java.port))
        assert looks.connect()
        before = everything(looks)
        java.end(how)
    snapshots = list((tmp_path / "java" / "data" / "version-2").glob("snapshot.*"))
    assert (len(snapshots) > 2) == (snap_count == "150")
    done = highwater("zookeeper", "import", str(tmp_path / "java"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "java" / "data" / "version-2.imported").is_dir()
    with server(tmp_path / "java") as zk:
        for raw in (*sessions, looks):
            raw.drop()
            raw.address = "127.0.0.1", zk.port
            session = raw.session
            assert raw.connect(), "it lives on"
            assert raw.session == session
        assert everything(looks) == before
        after = [raw.ask(Type.GET_EPHEMERALS, path_and("/")) for raw in sessions]
        assert after == ephemerals
        assert any(answer for _, answer in after), "there are some"
        wrong = Raw(looks.address, session=looks.session, password=b"x" * 16)
        assert not wrong.connect()
        # and it goes on: a change, and a kill
        code, path = looks.ask(Type.CREATE, create("/next-", b"", 2))
        assert code == 0
        stat = before["alice /"][0][1][1]
        assert int(path.removeprefix("/next-")) == (stat[3] + stat[7]) // 2, "its number goes on"
        zk.kill()
        zk.start()
        looks.drop()
        assert looks.connect()
        assert looks.ask(Type.EXISTS, path_and(path, b"\0"))[0] == 0


def test_it_is_refused_where_it_cannot_be_right(tmp_path: Path) -> None:
    folder = tmp_path / "java"
    done = highwater("zookeeper", "import", str(folder))
    assert (done.returncode, done.stderr) == (1, f"highwater: there is no folder {folder}\n")
    with _ended(Java(folder, "-Dzookeeper.extendedTypesEnabled=true")) as java:
        raw = Raw(("127.0.0.1", java.port))
        assert raw.connect()
        for path in ("/a", "/b"):
            assert raw.ask(Type.CREATE, create(path, b"", 0))[0] == 0
        done = highwater("zookeeper", "import", str(folder))
        assert done.returncode == 1
        assert re.search(r"process \d+ is a ZooKeeper on .*: stop it first", done.stderr)
        body = create("/t", b"", 5) + (60_000).to_bytes(8)
        assert raw.ask(Type.CREATE_TTL, body)[0] == 0
        java.end()
        done = highwater("zookeeper", "import", str(folder))
        assert done.returncode == 1
        assert "/t has a time to live, which the embedded ZooKeeper has not" in done.stderr
        java.start()
        raw.drop()
        assert raw.connect()
        assert raw.ask(Type.DELETE, path_and("/t", jute.number(-1)))[0] == 0
        assert raw.ask(Type.CREATE_CONTAINER, create("/c", b"", 4))[0] == 0
        java.end()
        done = highwater("zookeeper", "import", str(folder))
        assert done.returncode == 1
        assert "/c is a container" in done.stderr
    log = max((folder / "data" / "version-2").glob("log.*"), key=lambda path: path.name)
    whole = log.read_bytes()
    log.write_bytes(whole[:60] + bytes([whole[60] ^ 1]) + whole[61:])
    done = highwater("zookeeper", "import", str(folder))
    assert done.returncode == 1
    assert re.fullmatch(rf"highwater: {log}: at byte \d+: .*\n", done.stderr)
    names = sorted(path.name for path in (folder / "data").iterdir())
    assert names == ["version-2"], "nothing was written"


def test_a_clusters_records_are_there_after_it(tmp_path: Path) -> None:
    port, folder = free_ports(3)[0], str(tmp_path / "cluster")
    up = ("up", "--detach", "--brokers", "2", "--port", str(port), "--dir", folder)
    assert highwater(*up, "--zookeeper", "java").returncode == 0
    try:
        where = ("--bootstrap", f"127.0.0.1:{port}")
        assert highwater("topic", "create", "orders", "--partitions", "2", *where).returncode == 0
        command = [sys.executable, "-m", "highwater.cli.main", "topic", "produce", "orders", *where]
        records = "".join(f"record {number}\n" for number in range(100))
        subprocess.run(
            command, input=records, text=True, check=True, timeout=60, stdout=subprocess.DEVNULL
        )
        done = highwater("zookeeper", "import", folder)
        assert f"the cluster in {folder} runs: stop it first (highwater down" in done.stderr
        assert highwater("down", "--dir", folder).returncode == 0
        done = highwater(*up, "--zookeeper", "embedded")
        assert f"take it over (highwater zookeeper import {folder})" in done.stderr
        done = highwater("zookeeper", "import", folder)
        assert done.returncode == 0, done.stderr
        assert highwater(*up, "--zookeeper", "embedded").returncode == 0
        read = ("topic", "consume", "orders", "--count", "100", "--within", "30", *where)
        assert sorted(highwater(*read).stdout.splitlines()) == sorted(records.splitlines())
        url = control_url(Path(folder))
        assert url is not None
        control = Control(url)
        control.fault("swap_leader", "orders-0")
        control.wait("healthy", 60)
        control.close()
        done = highwater("zookeeper", "import", folder)
        assert done.returncode == 1
    finally:
        highwater("down", "--dir", folder)
