"""Finding Spark, Java and the connector, and the error line if one of them is missing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from highwater.verdict.by_spark import spark_submit
from highwater.verdict.by_spark.spark_submit import CONNECTOR, SparkFailed, SparkMissing
from highwater.verdict.runner import run
from tests.planted.stories import PLANTS
from tests.planted.story import write


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return path


@pytest.fixture
def no_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with nothing but a shell, and an empty cache."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("sh", "cat"):
        (folder / name).symlink_to(f"/bin/{name}")
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


def test_no_java_is_one_clear_line(no_tools: Path) -> None:
    pytest.importorskip("pyspark")
    with pytest.raises(SparkMissing, match="there is no java on PATH: install a JDK or set JAVA_H"):
        spark_submit.find()


def test_an_old_java_is_named_with_its_version(
    no_tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyspark")
    script(tmp_path / "jdk" / "bin" / "java", "echo 'openjdk version \"11.0.2\"' >&2\n")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    with pytest.raises(SparkMissing, match="is Java 11"):
        spark_submit.find()


def test_java_home_without_java_is_named(no_tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(SparkMissing, match="JAVA_HOME=/nowhere holds no bin/java"):
        spark_submit.find()


@pytest.mark.thorough
def test_without_java_auto_falls_back_and_spark_refuses(no_tools: Path, tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    write(tmp_path / "run", [p for p in PLANTS if p.name == "clean"])
    verdict = run(tmp_path / "run", "auto", lambda line: None)
    assert (verdict.verdict, verdict.engine) == ("valid", "duckdb")
    assert any("checked by DuckDB alone: Spark needs Java" in note for note in verdict.notes)
    with pytest.raises(SparkMissing):
        run(tmp_path / "run", "spark", lambda line: None)


def test_jars_in_the_cache_are_used_without_maven(no_tools: Path) -> None:
    folder = spark_submit.cache_folder()
    folder.mkdir(parents=True)
    for artifact in CONNECTOR:
        (folder / artifact.jar).touch()
    option, jars = spark_submit.connector_arguments(pytest.fail)
    assert option == "--jars"
    assert len(jars.split(",")) == len(CONNECTOR)


def test_maven_fetches_once_into_the_cache(no_tools: Path) -> None:
    names = " ".join(artifact.jar for artifact in CONNECTOR)
    (no_tools / "mkdir").symlink_to("/bin/mkdir")
    script(no_tools / "mvn", f"mkdir jars; for jar in {names}; do : > jars/$jar; done\n")
    said: list[str] = []
    first = spark_submit.connector_arguments(said.append)
    assert len(said) == 1
    assert spark_submit.connector_arguments(said.append) == first
    assert len(said) == 1
    assert all(os.path.exists(jar) for jar in first[1].split(","))
    assert list(spark_submit.cache_folder().parent.iterdir()) == [spark_submit.cache_folder()]


def test_a_failing_maven_is_quoted(no_tools: Path) -> None:
    script(no_tools / "mvn", "echo '[ERROR] Could not transfer artifact'; exit 1\n")
    with pytest.raises(SparkMissing, match="Could not transfer artifact"):
        spark_submit.connector_arguments(lambda line: None)


def test_without_maven_spark_resolves_the_connector_itself(no_tools: Path) -> None:
    arguments = spark_submit.connector_arguments(lambda line: None)
    assert arguments[0] == "--packages"
    assert "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0" in arguments[1]


def test_a_failing_job_is_quoted_with_its_log(tmp_path: Path) -> None:
    script(
        tmp_path / "bin" / "spark-submit",
        "echo 'verify: working'; echo 'Exception: no room' >&2; exit 3\n",
    )
    spark = spark_submit.Spark(tmp_path, "java")
    said: list[str] = []
    with pytest.raises(SparkFailed, match="ended with 3: Exception: no room"):
        spark_submit.submit(spark, ["job.py"], tmp_path / "log", progress=said.append)
    assert said == ["starting Spark", "working"]


def test_a_job_that_hangs_is_ended(tmp_path: Path) -> None:
    script(tmp_path / "bin" / "spark-submit", f"mkfifo {tmp_path}/f; exec cat {tmp_path}/f\n")
    spark = spark_submit.Spark(tmp_path, "java")
    with pytest.raises(SparkFailed, match="did not end in 0 s"):
        spark_submit.submit(
            spark, ["job.py"], tmp_path / "log", timeout_s=0.2, progress=lambda line: None
        )
