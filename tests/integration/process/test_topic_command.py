"""`highwater topic` on a secured cluster: as its administrator, as a user, past the security."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from highwater.cluster.ports import free_ports

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
HIGHWATER = [sys.executable, "-I", "-m", "highwater.cli.main"]


class Cluster:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = str(free_ports(1)[0])
        told = self.run("up", "--detach", "--secure", "--brokers=1", f"--port={self.port}")
        assert told.returncode == 0, told.stderr
        (self.inner,) = (
            line.split()[2] for line in told.stdout.splitlines() if "without security" in line
        )

    def run(self, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
        command = [*HIGHWATER, *words, f"--dir={self.folder}"]
        return subprocess.run(command, input=given, capture_output=True, text=True, check=False)

    def topic(self, *words: str, given: str = "") -> str:
        done = self.run("topic", *words, given=given)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def refused(self, *words: str, given: str = "", code: int = 1) -> str:
        done = self.run("topic", *words, given=given)
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stderr.splitlines()[-1]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("topics") / "cluster")
    yield made
    made.run("down", "--delete")


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_topics_life(cluster: Cluster) -> None:
    made = cluster.topic("create", "orders", "--partitions=2", "--set=retention.ms=-1")
    assert made == "orders: 2 partitions, 1 replicas each\n"
    assert cluster.topic("list") == "orders  2 partitions\n"
    assert cluster.topic("produce", "orders", "--partition=1", given="a\nb\n") == (
        "orders-1 offset 0\norders-1 offset 1\n"
    )
    told = lines(cluster.topic("produce", "orders", "--key==", "--json", given="ada=7\n"))
    assert [record["offset"] for record in told] in ([0], [2])
    assert cluster.topic("consume", "orders", "--count=3", "--within=20").splitlines() == (
        ["a", "b", "ada\t7"] if told[0]["partition"] == 1 else ["ada\t7", "a", "b"]
    )
    read = lines(
        cluster.topic("consume", "orders", "--partition=1", "--from=1", "--count=1", "--json")
    )
    assert [(r["offset"], r["value"]) for r in read] == [(1, "b")]
    assert "retention.ms=-1" in cluster.topic("describe", "orders")
    described = lines(cluster.topic("describe", "orders", "--json"))
    assert sum(row.get("end", 0) for row in described) == 3
    assert cluster.topic("delete", "orders") == "orders is deleted\n"
    assert cluster.topic("list") == ""


def test_as_a_user_and_past_the_security(cluster: Cluster) -> None:
    cluster.topic("create", "letters")
    secured, files = f"--bootstrap=127.0.0.1:{cluster.port}", cluster.folder / "secure"
    alice = (secured, f"--config={files / 'alice.properties'}")
    assert "or this user may not see it" in cluster.refused("describe", "letters", *alice)
    admin = (secured, f"--config={files / 'admin.properties'}")
    for words in (admin, (f"--bootstrap={cluster.inner}",)):
        cluster.topic("produce", "letters", *words, given="x\n")
        assert "letters" in cluster.topic("list", *words)
    cluster.topic("delete", "letters")


def test_one_line_for_what_goes_wrong(cluster: Cluster, tmp_path: Path) -> None:
    cluster.topic("create", "orders", "--partitions=1")
    assert "already exists" in cluster.refused("create", "orders")
    assert "'ordrs', or this user may not see it: there are orders" in cluster.refused(
        "describe", "ordrs"
    )
    assert "'ordrs', or this user may not see it: there are orders" in cluster.refused(
        "consume", "ordrs", "--within=5"
    )
    assert "foo is not a property" in cluster.refused("create", "other", "--set=foo=1")
    assert "they are 0 to 0" in cluster.refused("produce", "orders", "--partition=1", given="x\n")
    assert "line 2 has no '='" in cluster.refused("produce", "orders", "--key==", given="a=1\nb\n")
    assert "1 of 2 records came within 1 s" in cluster.refused(
        "consume", "orders", "--count=2", "--within=1"
    )
    dead = f"--bootstrap=127.0.0.1:{free_ports(1)[0]}"
    assert "no broker answers" in cluster.refused("list", dead)
    secured = f"--bootstrap=127.0.0.1:{cluster.port}"
    assert "no broker answers" in cluster.refused("list", secured)
    nowhere = subprocess.run(
        [*HIGHWATER, "topic", "list", f"--dir={tmp_path}"], capture_output=True, text=True
    )
    assert nowhere.returncode == 1
    assert "highwater up --detach" in nowhere.stderr
