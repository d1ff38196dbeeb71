"""A cluster that the client tests share, once as processes and once by compose.yaml."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from highwater.cluster.ports import free_ports

ComposeStack = Callable[..., AbstractContextManager[Any]]


@contextmanager
def processes(folder: Path) -> Iterator[list[int]]:
    """`highwater up --detach`, as a user starts it; yields the brokers' ports."""
    free = free_ports(30)
    port = next(p for p in free if {p + 1, p + 2} <= set(free))
    command = [sys.executable, "-I", "-m", "highwater.cli.main"]
    where = ["--dir", str(folder / "cluster")]
    try:
        done = subprocess.run(
            [*command, "up", "--detach", "--port", str(port), *where],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert f"127.0.0.1:{port}," in done.stdout  # it tells the bootstrap servers
        yield [port, port + 1, port + 2]
    finally:
        subprocess.run([*command, "down", *where], check=True, capture_output=True)


AGAIN = ("test_apache_tools.py", "test_compression_type.py")
"""kcat shows that the containers' listeners can be reached and carry each codec."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.name in AGAIN and item.get_closest_marker("compose"):
            item.add_marker(pytest.mark.rare)


@pytest.fixture(
    scope="package",
    params=["process", pytest.param("compose", marks=pytest.mark.compose)],
)
def ports(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    compose_stack: ComposeStack,
) -> Iterator[list[int]]:
    """The three brokers' ports on 127.0.0.1."""
    if request.param == "process":
        with processes(tmp_path_factory.mktemp("cluster")) as found:
            yield found
    else:
        with compose_stack("clients") as stack:
            yield stack.ports


@pytest.fixture(scope="package")
def bootstrap(ports: Sequence[int]) -> str:
    return ",".join(f"127.0.0.1:{port}" for port in ports)
