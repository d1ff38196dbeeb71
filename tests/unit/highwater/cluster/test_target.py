"""The names of targets, and the programs that they start."""

from __future__ import annotations

from pathlib import Path

import pytest

from highwater.child_processes import StartError
from highwater.cluster import apache
from highwater.cluster.programs import ApacheKafka
from highwater.cluster.target import ApacheRelease, parse


def test_a_release_is_named_by_its_version() -> None:
    assert parse("apache:3.9.2") == ApacheRelease("3.9.2")
    assert str(parse("apache:2.4.0")) == "Apache Kafka 2.4.0 (ZooKeeper)"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("apache:3.9", "not understood; write apache:VERSION"),
        ("kafka", "not understood"),
        ("apache:2.3.1", "before 2.4.0"),
    ],
)
def test_a_name_that_is_none_is_refused_in_one_line(text: str, told: str) -> None:
    with pytest.raises(StartError, match=told) as caught:
        parse(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("version", "protocol"), [("2.4.0", "2.4"), ("2.5.1", "2.5")])
def test_an_old_release_speaks_its_own_protocol(
    tmp_path: Path, version: str, protocol: str
) -> None:
    (tmp_path / "libs").mkdir()
    further = ApacheKafka(tmp_path, version=version).prepare(tmp_path, 3, "test")
    assert further["inter.broker.protocol.version"] == protocol


def test_a_later_release_speaks_that_of_all_clusters(tmp_path: Path) -> None:
    (tmp_path / "libs").mkdir()
    for version in ("2.6.0", "3.9.2", ""):
        further = ApacheKafka(tmp_path, version=version).prepare(tmp_path, 3, "test")
        assert "inter.broker.protocol.version" not in further


def test_old_releases_get_a_zookeeper_client_that_java_14_does_not_mislead() -> None:
    names = {(a.name, a.version) for a in apache.artifacts("2.4.0")}
    assert ("zookeeper", "3.5.9") in names
    assert "zookeeper" not in {a.name for a in apache.artifacts("2.6.0")}
