"""The project's wheel and source distribution, as their users get them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from highwater.cluster.processes import zookeeper_jars
from highwater.maven import has_jars
from tests.integration.missing import not_installed

ROOT = Path(__file__).parents[3]


def run(*command: str | Path, cwd: Path, **more: str) -> str:
    """The command's output; it gets none of this process's variables for Python."""
    clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, env=clean | more, capture_output=True, text=True)
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


def build(kind: str, folder: Path, source: Path = ROOT) -> Path:
    """The file of the `wheel` or `sdist` that is built into the folder."""
    if not has_jars(zookeeper_jars.ARTIFACTS, zookeeper_jars.cached()) and not shutil.which("mvn"):
        not_installed("Maven is not installed: the wheel's jars cannot be fetched")
    run(sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", folder, cwd=source)
    (built,) = folder.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return built
