"""Two of the examples of docs/languages.md; `scripts/long languages` runs all."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from highwater.cluster.ports import free_ports
from tests.cluster_image import build, container
from tests.integration.missing import not_installed
from tests.long.languages import run, up

pytestmark = [pytest.mark.integration, pytest.mark.compose, pytest.mark.timeout(400)]


def test_python_against_the_image() -> None:
    build()
    with container() as c:
        c.start_cluster()
        assert "200 read of 200 acknowledged" in run("python", c.control.url, c.token)


def test_javascript_against_highwater_up(tmp_path: Path) -> None:
    if shutil.which("npm") is None:
        not_installed("npm is not installed: the example in JavaScript needs it")
    with up(tmp_path / "up", free_ports(10)[0]) as url:
        assert "200 read of 200 acknowledged" in run("javascript", url)
