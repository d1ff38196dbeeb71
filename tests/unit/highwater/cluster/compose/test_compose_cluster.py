"""The contents of the override of compose.yaml; integration tests cover the engine."""

from __future__ import annotations

import json
from pathlib import Path

from highwater.cluster.compose.compose_cluster import ComposeCluster, ComposeSettings
from highwater.cluster.compose.compose_files import compose_file
from highwater.cluster.interface import exceptions_in
from highwater.kafka.config.sources import property_of_variable


def test_every_listener_and_zookeeper_is_reached_through_a_proxy(tmp_path: Path) -> None:
    cluster = ComposeCluster(ComposeSettings(tmp_path, {"log.segment.bytes": "1048576"}))
    cluster.write_override()
    services = json.loads(cluster.project.override.read_text())["services"]
    assert set(services) == {"zookeeper", "broker-1", "broker-2", "broker-3"}
    ports: list[str] = [*services["zookeeper"]["ports"]]
    for number in (1, 2, 3):
        service = services[f"broker-{number}"]
        environment = service["environment"]
        advertised = environment["KAFKA_ADVERTISED_LISTENERS"].split(",")
        assert [end.partition("://")[0] for end in advertised] == [
            "INTERNAL",
            "CONTROL",
            "EXTERNAL",
        ]
        assert [end.split("://")[1].partition(":")[0] for end in advertised] == [
            "host.docker.internal",
            "host.docker.internal",
            "127.0.0.1",
        ]
        assert environment["KAFKA_ZOOKEEPER_CONNECT"].startswith("host.docker.internal:")
        assert environment["KAFKA_LOG_SEGMENT_BYTES"] == "1048576"
        assert (tmp_path / f"broker-{number}" / "data").is_dir()
        ports += service["ports"]
    assert all(port.startswith("127.0.0.1:") for port in ports), "nothing is open to the network"
    text = compose_file().read_text()
    for number in (1, 2, 3):
        assert f"BROKER_{number}_PORT" in text
        assert f"BROKER_{number}_PORT" in cluster.project.environment


def test_a_property_survives_its_variable() -> None:
    from highwater.cluster.compose.compose_cluster import _variable

    for name in ("log.segment.bytes", "a_b.c-d"):
        assert property_of_variable(_variable(name)) == name


def test_exceptions_are_counted_and_the_last_is_named() -> None:
    trace = "Traceback (most recent call last):\n  File x\nValueError: first\n"
    text = f"INFO\n{trace}INFO\n{trace.replace('first', 'second')}INFO\n"
    assert exceptions_in(text) == "logged 2 exceptions, the last: ValueError: second"
