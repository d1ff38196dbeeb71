"""Apache Kafka's DumpLogSegments over a replica's files: its checks, and its complaints.

It reads batches with all their records (`--deep-iteration`), compares every index entry with the
log (`--verify-index-only`), and has each index check itself (`--index-sanity-check`).  It prints
faults to its standard error, except for bytes at a segment's end that are no batch.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

Run = Callable[..., "subprocess.CompletedProcess[str]"]
TOOL = "kafka.tools.DumpLogSegments"


def dump(apache_tool: Run, folders: Sequence[Path]) -> str:
    """Runs all of the tool's checks on all files of these replicas; returns what it printed of the
    batches."""
    logs, indexes = [], []
    for folder in folders:
        logs += sorted([*folder.glob("*.log"), *folder.glob("*.snapshot")])
        indexes += sorted([*folder.glob("*.index"), *folder.glob("*.timeindex")])
    assert logs
    assert indexes
    batches = _run(apache_tool, logs, "--deep-iteration")
    assert "invalid bytes" not in batches, batches[-2000:]
    assert len(re.findall(r"^Dumping ", batches, re.MULTILINE)) == len(logs)
    _run(apache_tool, indexes, "--verify-index-only")
    sane = _run(apache_tool, indexes, "--index-sanity-check")
    good = re.findall(r"^(\S+) (?:passed sanity check|is empty)\.", sane, re.MULTILINE)
    assert sorted(good) == sorted(map(str, indexes)), sane[-2000:]
    return batches


def _run(apache_tool: Run, files: Sequence[Path], option: str) -> str:
    done = apache_tool(TOOL, ["--files", ",".join(map(str, files)), option])
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert done.stderr == "", done.stderr[:3000]
    out: str = done.stdout
    return out
