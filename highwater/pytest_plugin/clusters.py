"""The clusters of one pytest process, kept by their settings until its end."""

from __future__ import annotations

import os
import shutil
import warnings
from pathlib import Path

import pytest

from highwater.agent.client import AgentProcess, Control, ControlError
from highwater.cluster.port_shares import SETTING, share_of_ports
from highwater.pytest_plugin.errors import SettingsWarning
from highwater.pytest_plugin.fixture_settings import Settings

MOST = 3
"""Clusters that run at once; the one used longest ago makes room."""
CLUSTERS = pytest.StashKey["Clusters"]()


class RunningCluster:
    """A cluster's agent, and what is to be cleaned up."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self.settings = settings
        self.folder = folder
        self.keep = settings.keep
        """Whether the folder stays: a test failed on this cluster, or it was asked for."""
        self.groups_left: list[str] = []
        """Groups that still had members when their test ended."""
        self.agent = AgentProcess.start(settings.for_agent(folder))
        self.control = Control(self.agent.control)

    @property
    def alive(self) -> bool:
        try:
            self.control.status()
        except ControlError:
            return False
        return True

    def close(self) -> None:
        self.agent.close()
        if not self.keep:
            shutil.rmtree(self.folder, ignore_errors=True)


class Clusters:
    def __init__(self, config: pytest.Config, folders: pytest.TempPathFactory) -> None:
        self._folders = folders
        self._running: dict[tuple[object, ...], RunningCluster] = {}
        self._failed: dict[tuple[object, ...], str] = {}
        if worker := os.environ.get("PYTEST_XDIST_WORKER"):
            # the ports of a broker that is down must not go to another worker's
            count = int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
            share = share_of_ports(int(worker.removeprefix("gw")), count)
            os.environ.setdefault(SETTING, share)
        config.add_cleanup(self.close)

    def get(self, settings: Settings) -> RunningCluster:
        """A running cluster with these settings; ends the test where it cannot be started."""
        key = settings.cluster
        if told := self._failed.get(key):
            pytest.fail(told, pytrace=False)
        cluster = self._running.pop(key, None)
        if cluster is not None and not cluster.alive:
            self.discard(cluster)
            cluster = None
        warned: list[str] = []
        if cluster is None:
            while len(self._running) >= MOST:
                self.discard(next(iter(self._running.values())))
            folder = self._folders.mktemp("kafka")
            try:
                cluster = RunningCluster(settings, folder)
            except ControlError as error:
                self._failed[key] = error.message
            else:
                warned = cluster.agent.warnings
        if cluster is None:  # not inside the handler, where pytest would tell both errors
            pytest.fail(self._failed[key], pytrace=False)
        self._running[key] = cluster
        cluster.keep |= settings.keep
        for line in warned:
            warnings.warn(line, SettingsWarning, stacklevel=2)
        return cluster

    def discard(self, cluster: RunningCluster) -> None:
        self._running = {k: c for k, c in self._running.items() if c is not cluster}
        cluster.close()

    def close(self) -> None:
        for cluster in list(self._running.values()):
            self.discard(cluster)


def clusters_of(config: pytest.Config, folders: pytest.TempPathFactory) -> Clusters:
    if CLUSTERS not in config.stash:
        config.stash[CLUSTERS] = Clusters(config, folders)
    return config.stash[CLUSTERS]
