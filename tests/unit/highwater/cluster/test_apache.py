"""The source of Apache Kafka's jars, and the error line if they are missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from highwater.child_processes import StartError
from highwater.cluster import apache
from highwater.cluster.maven import Artifact, fetch_jars, pom


def test_without_maven_the_remedy_is_named(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="install Maven"):
        fetch_jars("X", [Artifact("g", "a", "1")], tmp_path / "libs", env={"PATH": str(tmp_path)})


def test_what_maven_says_is_told_and_nothing_is_left_behind(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    mvn = tmp_path / "bin" / "mvn"
    mvn.write_text("#!/bin/sh\nmkdir -p jars\necho '[ERROR] no route'\nexit 1\n")
    mvn.chmod(0o755)
    with pytest.raises(StartError, match=r"could not fetch X: \[ERROR\] no route"):
        fetch_jars(
            "X", [Artifact("g", "a", "1")], tmp_path / "c" / "libs", {"PATH": str(mvn.parent)}
        )
    assert list((tmp_path / "c").iterdir()) == []


def test_the_pom_names_each_artifact() -> None:
    text = pom([Artifact("org.a", "one", "1"), Artifact("org.b", "two", "2")])
    assert text.count("<dependency>") == 2
    assert "<groupId>org.b</groupId><artifactId>two</artifactId><version>2</version>" in text


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
