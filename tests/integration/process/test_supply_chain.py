"""The lock fixes what is installed, and an audit that reached no service claims nothing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
LOCKS = [
    ROOT / "requirements.lock",
    ROOT / "scripts/supply-chain/requirements.txt",
    *sorted(ROOT.glob("docker/*/requirements.txt")),
]
UNREACHABLE = {"PIP_INDEX_URL": "http://127.0.0.1:1/simple", "PIP_NO_CACHE_DIR": "1"}
pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_package_is_locked_by_its_hashes(lock: Path) -> None:
    entries = re.split(r"\n(?=\S)", lock.read_text().strip())
    assert entries
    for entry in entries:
        assert re.match(r"[A-Za-z0-9._-]+==\S+", entry), f"{entry[:80]!r} names no one version"
        assert "--hash=sha256:" in entry, f"{entry.split()[0]} has no hash"


@pytest.mark.parametrize(
    ("script", "says"), [("audit", "audit: not audited"), ("sbom", "sbom: not written")]
)
def test_without_a_package_index_nothing_is_claimed(tmp_path: Path, script: str, says: str) -> None:
    """Each in a copy of its own, so that no tool is there already."""
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    shutil.copy(ROOT / "requirements.lock", tmp_path)
    done = subprocess.run(
        [tmp_path / "scripts" / script],
        env={**os.environ, **UNREACHABLE},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3, done.stderr
    assert says in done.stderr
    assert "known vulnerabilities" not in done.stdout
