"""One test: its cluster, its objects, the mending after it, and the story of its failure."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from highwater.agent.client import ControlError
from highwater.pytest_plugin import fixture_settings as settings_of
from highwater.pytest_plugin.chaos_fixture import Chaos
from highwater.pytest_plugin.clusters import RunningCluster, clusters_of
from highwater.pytest_plugin.fixture_settings import Settings
from highwater.pytest_plugin.history_fixture import History
from highwater.pytest_plugin.kafka import Kafka
from highwater.pytest_plugin.names import Groups, Topics

HEALTHY_S = 60.0
_MOST_EVENTS = 20


class OneTest:
    def __init__(self, name: str, settings: Settings, cluster: RunningCluster) -> None:
        self.cluster = cluster
        self.settings = settings
        control = cluster.control
        seed = f"{settings.seed} {name}"
        self.kafka = Kafka(control, cluster.folder, settings, seed)
        self.topics = Topics(control)
        self.groups = Groups(settings.group_protocol)
        self.chaos = Chaos(control, self.kafka.any_broker)
        self.kafka.wait.chaos = self.chaos
        self.history = History(control, settings.seed, self.groups)
        self._first_event = len(control.events(0))
        self._story = ""

    def story(self) -> str:
        """The report for a reader of the failure; the folder stays from here on."""
        if not self._story:
            self.cluster.keep = True
            lines = [
                f"the cluster's folder is kept: {self.cluster.folder}",
                f"the test's random choices: --kafka-seed {self.settings.seed}",
            ]
            try:
                lines += self._what_was_broken()
                if self.history.unchecked:
                    self.cluster.control.mend()
                    lines.append(self.history.first_anomaly())
            except ControlError as error:
                lines.append(f"the agent does not answer: {error}")
            self._story = "\n".join(lines)
        return self._story

    def _what_was_broken(self) -> list[str]:
        events = self.cluster.control.events(self._first_event)
        if not events:
            return ["nothing was broken in this test"]
        lines = [f"  {event['at'][11:23]} {event['text']}" for event in events[-_MOST_EVENTS:]]
        left_out = len(events) - len(lines)
        more = f" ({left_out} earlier lines left out)" if left_out else ""
        return [f"what was broken{more}:", *lines]

    def end(self) -> None:
        """Leaves the cluster as the next test expects it; raises ControlError where it cannot."""
        control = self.cluster.control
        self.history.close()
        for app in self.kafka.apps:
            app.close()
        control.mend()
        if self.chaos.last is not None:
            control.wait("healthy", HEALTHY_S)
            control.elect_first_replicas()  # a new controller would, amid the next test
        for topic in self.topics.made:
            with _suppressed("not_found"):  # the test deleted it
                control.delete_topic(topic)
        self.cluster.groups_left += self.groups.made
        for group in list(self.cluster.groups_left):
            with _suppressed("refused"):  # it still has members: it is tried again
                with _suppressed("not_found"):  # no member joined it
                    control.call("DELETE", f"/v1/groups/{group}")
                self.cluster.groups_left.remove(group)


@contextlib.contextmanager
def _suppressed(kind: str) -> Iterator[None]:
    try:
        yield
    except ControlError as error:
        if error.kind != kind:
            raise


@contextlib.contextmanager
def one_test(item: pytest.Item, marker: str, folders: pytest.TempPathFactory) -> Iterator[OneTest]:
    settings = settings_of.of_test(item, marker)
    clusters = clusters_of(item.config, folders)
    cluster = clusters.get(settings)
    test = OneTest(item.nodeid, settings, cluster)
    yield test
    failed: ControlError | None = None
    try:
        test.end()
    except ControlError as error:
        cluster.keep = True
        clusters.discard(cluster)
        failed = error
    if failed is not None:  # not inside the handler, where pytest would tell both errors
        pytest.fail(
            f"the cluster could not be mended after the test: {failed}\n"
            f"the next test gets a new one; this one's folder is kept: {cluster.folder}",
            pytrace=False,
        )
