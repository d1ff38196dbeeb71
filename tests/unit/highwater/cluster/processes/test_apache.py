"""The source of Apache Kafka's jars, and the error line if they are missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from highwater.child_processes import StartError
from highwater.cluster.processes import apache


def test_without_maven_the_remedy_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIGHWATER_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StartError, match="install Maven"):
        apache.home()


def test_a_home_without_jars_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIGHWATER_APACHE_KAFKA_HOME", str(tmp_path))
    with pytest.raises(StartError, match="holds no Kafka jars"):
        apache.home()


def test_a_home_with_jars_is_taken_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "libs").mkdir()
    (tmp_path / "libs" / "kafka_2.13-3.9.2.jar").write_bytes(b"")
    monkeypatch.setenv("HIGHWATER_APACHE_KAFKA_HOME", str(tmp_path))
    command = apache.program().command(tmp_path / "server.properties", "kafka")
    assert f"{tmp_path}/libs/*" in command
    assert "-XX:+UseG1GC" in command
