"""The names of targets, and the programs that they start."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from highwater.child_processes import StartError
from highwater.cluster.processes import apache, kraft, server_properties
from highwater.cluster.processes.programs import ApacheKafka
from highwater.cluster.shared import Ports
from highwater.cluster.target import ApacheRelease, parse


def test_a_release_is_named_by_its_version() -> None:
    assert parse("apache:3.9.2") == ApacheRelease("3.9.2")
    assert str(parse("apache:2.4.0")) == "Apache Kafka 2.4.0 (ZooKeeper)"
    assert str(parse("apache:3.9.2-kraft")) == "Apache Kafka 3.9.2 (KRaft)"


def test_controllers_can_be_processes_of_their_own() -> None:
    release = parse("apache:4.2.0-apart")
    assert str(release) == "Apache Kafka 4.2.0 (KRaft, controllers apart)"
    assert release.controllers == ["controller-101", "controller-102", "controller-103"]
    assert parse("apache:3.9.2-apart").lacks.keys() >= {"zookeeper", "expire_session"}
    assert parse("apache:4.2.0").controllers == []


def test_from_4_0_on_kraft_is_the_only_mode() -> None:
    for text in ("apache:4.0.0", "apache:4.2.0", "apache:4.2.0-kraft"):
        release = parse(text)
        assert str(release).endswith("(KRaft)")
        assert "expire_session" in release.lacks
    assert parse("apache:3.9.2").lacks.keys() == {
        "slow_disk",
        "clock_jump",
        "roll",
        "retain",
        "compact",
    }


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("apache:3.9", "not understood; write apache:VERSION"),
        ("kafka", "not understood"),
        ("apache:2.3.1", "before 2.4.0"),
        ("apache:3.4.0-kraft", "from 3.7.0 on"),
        ("apache:3.4.0-apart", "from 3.7.0 on"),
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


def test_a_release_outlives_the_pauses_of_its_start(tmp_path: Path) -> None:
    (tmp_path / "libs").mkdir()
    session = "zookeeper.session.timeout.ms"
    assert ApacheKafka(tmp_path, version="2.4.0").prepare(tmp_path, 3, "test")[session] == "6000"
    kraft = ApacheKafka(tmp_path, version="3.9.2", kraft=True).prepare(tmp_path, 3, "test")
    assert session not in kraft
    oracle = ApacheKafka(tmp_path).prepare(tmp_path, 3, "test")
    assert oracle[session] == "3000", "the same as Highwater's"


def test_a_later_release_speaks_that_of_all_clusters(tmp_path: Path) -> None:
    (tmp_path / "libs").mkdir()
    for version in ("2.6.0", "3.9.2", ""):
        further = ApacheKafka(tmp_path, version=version).prepare(tmp_path, 3, "test")
        assert "inter.broker.protocol.version" not in further


def test_old_releases_get_a_zookeeper_client_that_java_14_does_not_mislead() -> None:
    names = {(a.name, a.version) for a in apache.artifacts("2.4.0")}
    assert ("zookeeper", "3.5.10") in names
    assert "zookeeper" not in {a.name for a in apache.artifacts("2.6.0")}


PORTS = {
    n: Ports(
        {"INTERNAL": 10 * n, "CONTROLLER": 10 * n + 1, "EXTERNAL": 10 * n + 2},
        {"INTERNAL": 10 * n + 5, "CONTROLLER": 10 * n + 6, "EXTERNAL": 10 * n + 7},
        0,
    )
    for n in (1, 2, 3)
}


def test_a_controller_apart_has_the_port_that_the_broker_beside_it_does_not_use() -> None:
    apart = [101, 102, 103]
    voters = "101@127.0.0.1:16,102@127.0.0.1:26,103@127.0.0.1:36"
    broker = server_properties.kraft(2, PORTS, {}, Path("metadata"), apart)
    assert broker["process.roles"] == "broker"
    assert broker["listeners"] == "INTERNAL://127.0.0.1:20,EXTERNAL://127.0.0.1:22"
    made = server_properties.kraft_controller(102, PORTS, Path("metadata"), apart)
    assert (made["process.roles"], made["node.id"]) == ("controller", "102")
    assert made["listeners"] == "CONTROLLER://127.0.0.1:21"
    assert broker["controller.quorum.voters"] == made["controller.quorum.voters"] == voters


def test_a_voter_is_reached_through_its_proxy() -> None:
    made = server_properties.kraft(2, PORTS, {}, Path("metadata"))
    assert made["controller.quorum.voters"] == "1@127.0.0.1:16,2@127.0.0.1:26,3@127.0.0.1:36"
    assert made["advertised.listeners"] == "INTERNAL://127.0.0.1:25,EXTERNAL://127.0.0.1:27"


def test_a_cluster_id_is_one_of_kafkas() -> None:
    for made in (kraft.cluster_id() for _ in range(200)):
        assert len(made) == 22
        assert not made.startswith("-")
        assert len(base64.urlsafe_b64decode(made + "==")) == 16
