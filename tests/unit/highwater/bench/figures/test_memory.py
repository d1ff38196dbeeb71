"""The memory of a broker's processes, some of which end while they are read."""

from __future__ import annotations

import os
import subprocess
import sys

import psutil
import pytest

from highwater.bench.figures.memory import pss_mib


def test_a_child_that_has_just_ended_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        child = psutil.Process(process.pid)
        monkeypatch.setattr(psutil.Process, "children", lambda *_, **__: [child])
        both = pss_mib(os.getpid())
        process.communicate(b"\n")
    alone = pss_mib(os.getpid())
    assert 0 < alone < both


def test_a_process_that_is_no_more_is_an_error() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        pid = process.pid
    with pytest.raises(psutil.NoSuchProcess):
        pss_mib(pid)
