"""The recorders of Java, Go and JavaScript: each one's history is valid, and with a planted loss
invalid.

usage: python -m tests.long.recorders [LANGUAGE ...]

Each builds a program of tests/long/recorders beside a copy of its recorder, with the client
library from its registry, and runs it against a cluster of its own.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from highwater.verdict import runner
from tests.background import BackgroundCluster

HERE = Path(__file__).parent / "recorders"
ROOT = Path(__file__).parents[2]
BUILDS: dict[str, tuple[tuple[str, ...], list[list[str]], list[str]]] = {
    "javascript": (
        ("recorder.js", "main.js"),
        [["npm", "install", "--no-save", "kafkajs@2.2.4"]],
        ["node", "main.js"],
    ),
    "go": (
        ("recorder.go", "main.go"),
        [
            ["go", "mod", "init", "recorded"],
            ["go", "get", "github.com/twmb/franz-go@v1.18.0"],
            ["go", "mod", "tidy"],
            ["go", "build", "-o", "main", "."],
        ],
        ["./main"],
    ),
    "java": (
        ("Recorder.java", "Main.java", "pom.xml"),
        [
            ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=jars"],
            ["javac", "-cp", "jars/*", "Recorder.java", "Main.java"],
        ],
        ["java", "-cp", "jars/*:.", "Main"],
    ),
}
"""Language -> its files, the commands that build it, and the one that runs it."""


def build(language: str, folder: Path) -> None:
    files, commands, _ = BUILDS[language]
    for name in files:
        place = HERE if (HERE / name).exists() else ROOT / "recorders"
        shutil.copy(place / name, folder / name)
    for command in commands:
        subprocess.run(command, cwd=folder, check=True, timeout=300)


def judge(cluster: BackgroundCluster, language: str, folder: Path, lost: bool) -> tuple[str, str]:
    """The verdict on one history, and its headline."""
    topic = f"{language}-{lost}".lower()
    cluster.create_topic(topic, partitions=3)
    out = folder / topic
    out.mkdir()
    server = cluster.bootstrap_servers.split(",")[0]
    for step in ("work", *(["lose"] * lost), "read"):
        command = [*BUILDS[language][2], server, topic, str(out / "history.jsonl"), step]
        subprocess.run(command, cwd=folder, check=True, timeout=120)
        if step == "lose":
            admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
            everything = [TopicPartition(topic, number, -1) for number in range(3)]
            for done in admin.delete_records(everything).values():
                done.result(30)
    verdict = runner.run(out, "duckdb", lambda line: None)
    return verdict.verdict, "; ".join([verdict.headline, *verdict.notes])


def main(languages: Sequence[str]) -> int:
    wrong = 0
    with tempfile.TemporaryDirectory() as work, BackgroundCluster(Path(work) / "c") as cluster:
        for language in languages:
            folder = Path(work) / language
            folder.mkdir()
            build(language, folder)
            for lost, expected in ((False, "valid"), (True, "invalid")):
                word, told = judge(cluster, language, folder, lost)
                wrong += word != expected
                print(f"{language}, {'a loss' if lost else 'sound'}: {word}: {told}", flush=True)
    count = 2 * len(languages)
    print(f"{count - wrong} of {count} histories were judged as they should be")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or list(BUILDS)))
