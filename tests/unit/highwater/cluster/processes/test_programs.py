"""The command that starts a broker."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PRINTED = """
import json
from pathlib import Path
from highwater.cluster.processes.programs import Highwater
print(json.dumps(Highwater().command(Path("server.properties"), "test")))
"""


@pytest.mark.thorough
@pytest.mark.parametrize("options", [[], ["-O"]])
def test_brokers_run_without_assertions_if_their_starter_does(options: list[str]) -> None:
    root = Path(__file__).parents[5]
    told = subprocess.run(
        [sys.executable, *options, "-c", PRINTED], cwd=root, capture_output=True, check=True
    )
    command = json.loads(told.stdout)
    assert ("-O" in command) == bool(options)
    assert command[command.index("-I") :][:3] == ["-I", "-m", "highwater.broker"]
