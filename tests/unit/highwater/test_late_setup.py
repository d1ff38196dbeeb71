"""Waiting for a PySpark that is still being installed: until it is there, failed, or too late."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from highwater import late_setup
from highwater.late_setup import SETTING, LateSetupFailed


@pytest.fixture
def setup() -> Iterator[subprocess.Popen[bytes]]:
    """A child that ends when its input does."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as child:
        yield child


def test_without_a_setup_nothing_is_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    late_setup.wait(print, env={})
    late_setup.wait(print, env={SETTING: "1 /anywhere"})  # not this process's child
    late_setup.wait(print, env={SETTING: "odd"})
    assert capsys.readouterr().out == ""


def test_pyspark_is_there_before_the_setup_ends(
    setup: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    env = {SETTING: f"{setup.pid} {tmp_path}"}
    assert late_setup.spark_is_there_by_half(env)
    said: list[str] = []

    def progress(line: str) -> None:
        said.append(line)
        (tmp_path / "setup-spark-stamp").touch()

    late_setup.wait(progress, env=env)
    assert said == ["waiting for PySpark, which is being installed (at most 180 s)"]
    assert setup.poll() is None
    assert not late_setup.spark_is_there_by_half(env)


def test_the_wait_has_a_limit(setup: subprocess.Popen[bytes], tmp_path: Path) -> None:
    with pytest.raises(LateSetupFailed, match="not installed within 0 s"):
        late_setup.wait(print, 0, {SETTING: f"{setup.pid} {tmp_path}"})


def test_a_setup_that_was_killed_is_told(setup: subprocess.Popen[bytes], tmp_path: Path) -> None:
    setup.kill()
    with pytest.raises(LateSetupFailed, match="could not be installed: it was killed"):
        late_setup.wait(print, env={SETTING: f"{setup.pid} {tmp_path}"})
