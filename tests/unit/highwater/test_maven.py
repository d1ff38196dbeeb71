"""Fetching jars by a Maven that is a shell script: whole folders, checksums, and clear errors."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from highwater.maven import Artifact, FetchError, fetch_jars, pom

JAR = b"a jar\n"
ONE = Artifact("org.a", "one", "1", hashlib.sha256(JAR).hexdigest())


def maven(folder: Path, script: str) -> dict[str, str]:
    """The environment of a Maven that does this, in a folder with the project's pom.xml."""
    folder.mkdir()
    mvn = folder / "mvn"
    mvn.write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\nmkdir jars\n{script}\n")
    mvn.chmod(0o755)
    return {"PATH": str(folder)}


def test_without_maven_the_remedy_is_named(tmp_path: Path) -> None:
    with pytest.raises(FetchError, match="X is fetched by Maven, and there is no mvn: install"):
        fetch_jars("X", [ONE], tmp_path / "libs", {"PATH": str(tmp_path)})


def test_what_maven_says_is_told_and_nothing_is_left_behind(tmp_path: Path) -> None:
    said = "echo '[ERROR] '; echo '[ERROR] no route'"
    env = maven(tmp_path / "bin", f"{said}; exit 1")
    with pytest.raises(FetchError, match=r"could not fetch X: \[ERROR\] no route"):
        fetch_jars("X", [ONE], tmp_path / "c" / "libs", env)
    assert list((tmp_path / "c").iterdir()) == []


def test_a_version_that_does_not_exist_is_told_in_one_line(tmp_path: Path) -> None:
    said = "printf '\\033[0m[ERROR] Failed: Could not find artifact a:b:jar:9.9.9 in x\\n'"
    env = maven(tmp_path / "bin", f"{said}; exit 1")
    with pytest.raises(FetchError, match="X is in no repository of Maven's settings: is its vers"):
        fetch_jars("X", [ONE], tmp_path / "c" / "libs", env)


def test_jars_are_fetched_once_and_replace_a_folder_that_is_not_whole(tmp_path: Path) -> None:
    env = maven(tmp_path / "bin", f"echo again >>{tmp_path}/calls; echo a jar >jars/one-1.jar")
    target = tmp_path / "libs"
    target.mkdir()
    (target / "other.jar").touch()
    for _ in range(2):
        fetch_jars("X", [ONE], target, env)
    assert [path.name for path in target.iterdir()] == ["one-1.jar"]
    assert (tmp_path / "calls").read_text() == "again\n"


def test_a_jar_of_another_checksum_is_refused(tmp_path: Path) -> None:
    env = maven(tmp_path / "bin", "echo another jar >jars/one-1.jar")
    with pytest.raises(
        FetchError, match=rf"one-1\.jar has SHA-256 [0-9a-f]{{64}}, not {ONE.sha256}"
    ):
        fetch_jars("X", [ONE], tmp_path / "libs", env)
    assert not (tmp_path / "libs").exists()


def test_a_jar_that_does_not_come_is_named(tmp_path: Path) -> None:
    with pytest.raises(FetchError, match=r"fetched X without one-1\.jar"):
        fetch_jars("X", [ONE], tmp_path / "libs", maven(tmp_path / "bin", ""))


def test_the_pom_names_each_artifact_alone_where_that_is_asked() -> None:
    text = pom([ONE, Artifact("org.b", "two", "2")])
    assert text.count("<dependency>") == 2
    assert "<groupId>org.b</groupId><artifactId>two</artifactId><version>2</version>" in text
    assert "<exclusions>" not in text
    assert pom([ONE], alone=True).count("<exclusions>") == 1
