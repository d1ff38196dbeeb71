from __future__ import annotations

from pathlib import Path

import pytest

from highwater.child_processes import StartError
from highwater.cluster.processes import zookeeper_choice as choice


def test_a_folder_goes_on_with_the_one_that_it_had(tmp_path: Path) -> None:
    folder = tmp_path / "zookeeper"
    assert choice.chosen(folder, "") == "embedded"
    assert choice.chosen(folder, "", "java") == "java"
    assert choice.chosen(folder, "host:2181/mine") == "host:2181/mine"
    choice.remember(folder, "host:2181/mine")
    assert choice.chosen(folder, "") == "host:2181/mine"
    with pytest.raises(StartError, match="in the ZooKeeper host:2181/mine: use --zookeeper host"):
        choice.chosen(folder, "embedded")


def test_a_folder_of_before_is_known_by_its_data(tmp_path: Path) -> None:
    (tmp_path / "javas" / "data" / "version-2").mkdir(parents=True)
    assert choice.chosen(tmp_path / "javas", "") == "java"
    with pytest.raises(StartError, match=r"use --zookeeper java, take it over \(highwater zoo"):
        choice.chosen(tmp_path / "javas", "embedded")
    (tmp_path / "own" / "data").mkdir(parents=True)
    (tmp_path / "own" / "data" / "log.1").touch()
    assert choice.chosen(tmp_path / "own", "", "java") == "embedded"


def test_none_begins_empty_beside_brokers_data(tmp_path: Path) -> None:
    data = tmp_path / "broker-1" / "data"
    data.mkdir(parents=True)
    (data / "meta.properties").touch()
    for asked in ("", "java", "embedded"):
        with pytest.raises(
            StartError, match=r"has a broker.s data, and .* nothing of the ZooKeeper"
        ):
            choice.chosen(tmp_path / "zookeeper", asked)
    assert choice.chosen(tmp_path / "zookeeper", "host:2181") == "host:2181"


def test_addresses() -> None:
    assert choice.addresses("a:1,[::1]:2/x/y/") == ([("a", 1), ("::1", 2)], "/x/y")
    assert choice.addresses("a:1") == ([("a", 1)], "")
    for wrong in (
        "jave",
        "a",
        "a:0",
        "a:70000",
        "a:1,",
        "a:1/",
        "a:1//x",
        ":1",
        "a b:1",
        "http://a:1",
    ):
        with pytest.raises(StartError, match="a ZooKeeper is java, embedded or HOST:PORT"):
            choice.checked(wrong)
