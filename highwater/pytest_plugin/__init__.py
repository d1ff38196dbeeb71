"""Fixtures `kafka`, `topic`, `group`, `chaos` and `history`: a cluster that a test may break.

    @pytest.mark.kafka(brokers=3, config={"min.insync.replicas": 2})
    def test_leader_loss(kafka, topic, chaos):
        orders = topic("orders", partitions=3)
        with chaos.kill(kafka.leader(orders, 0)):
            kafka.wait.leader_changed(orders, 0, within_s=5)

The installed package has an entry point for pytest, so nothing has to be enabled; docs/pytest.md is
the manual.  The cluster belongs to an agent, a process of its own: here nothing is imported but
pytest and the standard library, and that only by the first test that uses a fixture.

The fixtures are registered under a prefix of the user's choice.  They find each other as attributes
of `_highwater`, the one name that they request, so that a conftest may define any of theirs.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Generator, Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from highwater.pytest_plugin.choices import (
    GROUP_PROTOCOLS,
    MOST_BROKERS,
    PROFILES,
    RUNTIMES,
    SECURITIES,
    is_runtime,
)

if TYPE_CHECKING:
    from highwater.pytest_plugin.chaos_fixture import Chaos, Fault
    from highwater.pytest_plugin.errors import Anomaly, FixtureError, NotInTime, SettingsWarning
    from highwater.pytest_plugin.history_fixture import Checked, Client, History, Unavailable
    from highwater.pytest_plugin.kafka import Kafka, Waits
    from highwater.pytest_plugin.names import Group, Groups, Topic, Topics
    from highwater.pytest_plugin.one_test import OneTest

__all__ = [
    "Anomaly",
    "Chaos",
    "Checked",
    "Client",
    "Fault",
    "FixtureError",
    "Group",
    "Groups",
    "History",
    "Kafka",
    "NotInTime",
    "SettingsWarning",
    "Topic",
    "Topics",
    "Unavailable",
    "Waits",
]
_ROOMS = ("chaos_fixture", "errors", "history_fixture", "kafka", "names")


def __getattr__(name: str) -> Any:
    """Imports a public type where it is asked for: most test runs need none."""
    if name in __all__:
        for room in _ROOMS:
            module = importlib.import_module(f"{__name__}.{room}")
            if hasattr(module, name):
                return getattr(module, name)
    raise AttributeError(f"module {__name__} has no attribute {name}")


def _runtime(text: str) -> str:
    if not is_runtime(text):
        known = ", ".join(RUNTIMES)
        raise argparse.ArgumentTypeError(f"no runtime {text!r}; there are {known}")
    return text


def _property(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE, as num.partitions=4")
    return name, value


def pytest_addoption(parser: pytest.Parser) -> None:
    told = "prefix of the names kafka, topic, group, chaos and history, and of the marker kafka"
    parser.addini("highwater_prefix", told, default="")
    group = parser.getgroup("kafka", "Kafka clusters of Highwater")
    group.addoption("--highwater-prefix", metavar="PREFIX", help=told)
    group.addoption(
        "--kafka-brokers",
        type=int,
        choices=range(1, MOST_BROKERS + 1),
        metavar="N",
        help="brokers (3)",
    )
    group.addoption(
        "--kafka-runtime",
        type=_runtime,
        metavar="RUNTIME",
        help="process (the default); compose: containers; apache: Apache Kafka 3.9 as processes;"
        " apache:VERSION: another release, as apache:4.2.0",
    )
    group.addoption(
        "--kafka-security",
        choices=SECURITIES,
        help="what clients' connections speak (plaintext); kafka.client_config() tells them",
    )
    group.addoption(
        "--kafka-profile",
        choices=PROFILES,
        help="test: quick to notice failures (the default); kafka: Apache Kafka's defaults",
    )
    group.addoption(
        "--kafka-config",
        type=_property,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a broker property, as min.insync.replicas=1; may be given again",
    )
    group.addoption(
        "--kafka-zookeeper",
        metavar="WHICH",
        help="embedded: Highwater's ZooKeeper, without Java (the default); java: ZooKeeper's own"
        " server; HOST:PORT[,...][/CHROOT]: one that runs",
    )
    group.addoption(
        "--kafka-group-protocol",
        choices=GROUP_PROTOCOLS,
        help="of the groups that group() names (classic); consumer: KIP-848's; share: KIP-932's",
    )
    group.addoption("--kafka-seed", type=int, metavar="N", help="of random choices (0)")
    group.addoption(
        "--kafka-keep", action="store_true", default=None, help="keep the clusters' folders"
    )


def pytest_configure(config: pytest.Config) -> None:
    prefix = config.getoption("highwater_prefix")
    prefix = config.getini("highwater_prefix") if prefix is None else prefix
    if prefix and not f"{prefix}kafka".isidentifier():
        raise pytest.UsageError(f"highwater_prefix is {prefix!r}: names begin so, as with hw_")
    config.stash[MARKER] = f"{prefix}kafka"
    config.addinivalue_line(
        "markers",
        f"{prefix}kafka(brokers=3, config={{}}, profile='test', seed=0, runtime='process',"
        " security='plaintext', keep=False, zookeeper='embedded',"
        " group_protocol='classic'): the cluster that this test needs (docs/pytest.md)",
    )
    functions = {"_highwater": _highwater}
    functions |= {prefix + f.__name__: f for f in (kafka, topic, group, chaos, history)}
    fixtures = {f.__name__: pytest.fixture(name=name)(f) for name, f in functions.items()}
    module = ModuleType("highwater-fixtures")  # pytest looks for fixtures in classes and modules
    vars(module).update(fixtures)
    config.pluginmanager.register(module, module.__name__)


MARKER = pytest.StashKey[str]()
TEST = pytest.StashKey["OneTest"]()


def _highwater(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OneTest]:
    """The state that the fixtures of one test share."""
    from highwater.pytest_plugin.one_test import one_test

    with one_test(request.node, request.config.stash[MARKER], tmp_path_factory) as test:
        request.node.stash[TEST] = test
        yield test


def kafka(_highwater: OneTest) -> Kafka:
    """A Kafka cluster: addresses, questions, waits."""
    return _highwater.kafka


def topic(_highwater: OneTest) -> Topics:
    """topic("orders", partitions=3): a new topic, deleted after the test."""
    return _highwater.topics


def group(_highwater: OneTest) -> Groups:
    """group("billing"): the name of a new group of consumers, deleted after the test."""
    return _highwater.groups


def chaos(_highwater: OneTest) -> Chaos:
    """Faults, healed at the end of their block or of the test."""
    return _highwater.chaos


def history(_highwater: OneTest) -> History:
    """Producers and consumers beside the test, and checks of what they saw."""
    return _highwater.history


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, None]:
    outcome = yield
    report = outcome.get_result()
    test = item.stash.get(TEST, None)
    if test is not None and report.failed:
        report.sections.append(("Kafka", test.story()))
