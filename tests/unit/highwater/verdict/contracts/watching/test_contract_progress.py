"""The contract's watch: its use of Spark's progress, and who may use a state folder."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from highwater.verdict.contracts.watching.job import progress_of, take
from highwater.verdict.watching.job import CannotWatch


def progress(end: object, latest: object) -> str:
    source = {"startOffset": None, "endOffset": end, "latestOffset": latest}
    return json.dumps({"timestamp": "2026-01-02T03:04:05.678Z", "sources": [source]})


def test_which_partitions_were_not_read_to_their_ends() -> None:
    end, latest = {"a": {"0": 5, "1": 7}}, {"a": {"0": 5, "1": 9}, "b": {"0": 1}}
    assert progress_of(progress(end, latest)) == (1767323045678, [("a", 1), ("b", 0)])
    assert progress_of(progress(json.dumps(latest), latest)) == (1767323045678, [])
    assert progress_of(progress(None, latest)) is None
    assert progress_of(json.dumps({"timestamp": "", "sources": []})) is None


def test_two_watches_do_not_share_a_state(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib\n"
        "from highwater.verdict.contracts.watching.job import take\n"
        "held = take(pathlib.Path(sys.argv[1]))\n"
        "print('held', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(CannotWatch, match="belongs to a watch that still runs"):
            take(tmp_path)
        other.stdin.close()
        other.wait()
    take(tmp_path).close()
