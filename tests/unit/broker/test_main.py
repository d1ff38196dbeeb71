"""The broker's command line: a bad configuration gives a line each on stderr, and exit code 2."""

from __future__ import annotations

from pathlib import Path

import pytest

from highwater.broker.__main__ import BAD_CONFIG, main


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in [n for n in os.environ if n.startswith("KAFKA_")]:
        monkeypatch.delenv(name)


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    assert main(arguments) == BAD_CONFIG
    return capsys.readouterr().err.splitlines()


def test_no_such_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = str(tmp_path / "missing.properties")
    [line] = told(capsys, "--config", path)
    assert line.startswith(f"{path}: No such file or directory; ")


def test_binary_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"\xff\xfe\x00")
    [line] = told(capsys, "--config", str(path))
    assert "not a text file" in line


def test_every_complaint_is_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("broker.id=1\nzookeeper.connect=localhost:1\nnum.io.threads=0\n")
    lines = told(capsys, "--config", str(path), "--override", "listeners=here")
    assert lines == ["num.io.threads=0: must be at least 1; use 1 or more"]
    lines = told(capsys, "--config", str(path), "--override", "num.io.threads=1",
                 "--override", "listeners=here", "--override", "broker.id=5000")  # fmt: skip
    assert len(lines) == 2
    assert lines[1].startswith("listeners=here: ")


def test_broker_id_and_overrides(capsys: pytest.CaptureFixture[str]) -> None:
    [line] = told(capsys, "--override", "zookeeper.connect=localhost:1")
    assert line.startswith("broker.id is not set")
    [line] = told(capsys, "--override", "nonsense")
    assert line == "--override nonsense: not a property; write --override name=value"


def test_environment_only_where_no_file_is_given(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KAFKA_NUM_IO_THREADS", "0")
    path = tmp_path / "server.properties"
    path.write_text("zookeeper.connect=localhost:1\n")
    [line] = told(capsys, "--config", str(path))
    assert line.startswith("broker.id is not set")
    [line] = told(capsys, "--config", str(path), "--environment")
    assert line.startswith("num.io.threads=0")
