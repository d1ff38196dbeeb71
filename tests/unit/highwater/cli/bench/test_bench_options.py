"""A benchmark's folder goes at the end, and stays if there is something to look at."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from highwater.cli.bench.bench_options import working
from highwater.cluster.interface import ClusterError


def test_the_folder_is_made_and_goes(tmp_path: Path) -> None:
    with working(tmp_path / "new" / "dir") as work:
        (work / "log").touch()
    assert list((tmp_path / "new" / "dir").iterdir()) == []


def test_what_a_failure_left_is_kept_and_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        with working(tmp_path) as work:
            (work / "output.log").write_text("why")
            raise ClusterError("broker-1 ended")

    with pytest.raises(SystemExit):
        fail()
    (work,) = tmp_path.iterdir()
    assert (work / "output.log").read_text() == "why"
    assert f"kept, to be looked at and removed: {work}" in capsys.readouterr().err


def test_a_failure_that_left_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit), working(tmp_path):
        raise ClusterError("no")
    assert (list(tmp_path.iterdir()), capsys.readouterr().err) == ([], "highwater: no\n")


def test_a_folder_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(click.UsageError, match=r"--dir .*file: "), working(tmp_path / "file"):
        pass
