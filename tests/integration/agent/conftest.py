"""One agent for all tests of a module's cluster, whole again after each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from highwater.agent.client import AgentProcess, Control


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentProcess]:
    with AgentProcess.start({"folder": str(tmp_path_factory.mktemp("agent"))}) as started:
        yield started


@pytest.fixture
def control(agent: AgentProcess) -> Iterator[Control]:
    made = Control(agent.control)
    yield made
    made.mend()
    made.close()
