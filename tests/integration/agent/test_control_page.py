"""The commands of docs/control.md, as a reader would run them, and its table against the routes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from highwater.agent.client import AgentProcess

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
PAGE = (Path(__file__).parents[3] / "docs/control.md").read_text()


def block(language: str, word: str) -> str:
    (found,) = [
        text for text in re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL) if word in text
    ]
    return str(found)


def test_the_commands_of_the_page(agent: AgentProcess) -> None:
    script = block("sh", "API=").replace("http://127.0.0.1:9990", agent.control)
    done = subprocess.run(
        ["bash", "-euxc", script], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert '"id": 1' in done.stdout


def test_the_python_of_the_page(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", block("python", "AgentProcess")],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
