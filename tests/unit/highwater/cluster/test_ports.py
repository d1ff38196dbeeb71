"""Ports that a cluster asked for belong to one cluster at a time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from highwater.cluster.ports import PortInUse, claimed

PORT = 28_099
HOLDER = """
import sys
from pathlib import Path
from highwater.cluster.ports import claimed
with claimed([{port}], Path("/elsewhere")):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def folder_of_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def test_the_second_is_told_whose_the_port_is() -> None:
    with claimed([PORT, PORT + 1], Path("/one")):
        with pytest.raises(PortInUse) as raised, claimed([PORT + 1], Path("/other")):
            pass
        assert str(raised.value) == (
            f"port {PORT + 1} (a broker's port) is taken by the cluster in /one: stop it "
            "(highwater down --dir /one), or give another --port"
        )
    with claimed([PORT + 1], Path("/other")):
        pass


def test_what_was_claimed_before_the_refusal_is_given_back() -> None:
    with claimed([PORT + 1], Path("/one")):
        with pytest.raises(PortInUse), claimed([PORT, PORT + 1], Path("/other")):
            pass
        with claimed([PORT], Path("/third")):
            pass


def test_a_holder_that_was_killed_holds_nothing(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER.format(port=PORT)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"TMPDIR": str(tmp_path), "PATH": ""},
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(PortInUse, match="/elsewhere"), claimed([PORT], Path("/one")):
            pass
    finally:
        holder.kill()
        holder.communicate()
    with claimed([PORT], Path("/one")):
        pass
