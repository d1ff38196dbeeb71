"""The tree keeps its order: no crowded folder, no two files of one name, no circle at run time."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from tests.circles import ROOMS, among_siblings, circles, graph, modules

ROOT = Path(__file__).parents[2]
MOST_SIBLINGS = 25
ORDERED = {
    "broker/handlers": "one file for each API",
    "spark/checks": "one file for each check",
}
SAME_THING = {
    "__init__",
    "__main__",
    # the real world and the simulated one
    "disk", "network", "process", "zookeeper",
    # a broker's handler or part, and the bytes of its messages
    "fetch", "produce", "records", "metadata",
    # of groups and of transactions
    "coordinator", "shard",
    # a client's end, a broker's end
    "connection",
    # the watch of a run and of a topic
    "job", "tables",
    # a pure state machine, each of its room
    "machine",
    # a simulated socket's poller, and a broker's
    "poller",
    # the exceptions of a room
    "errors",
    # the command, and the Spark job that it starts
    "verify",
}  # fmt: skip


def test_no_room_is_crowded() -> None:
    crowded = {}
    for top in ROOMS:
        for folder in [
            ROOT / top,
            *(f for f in (ROOT / top).rglob("*") if f.is_dir() and f.name != "__pycache__"),
        ]:
            name = str(folder.relative_to(ROOT))
            here = [f for f in folder.iterdir() if not f.name.startswith(("__", "."))]
            if len(here) > MOST_SIBLINGS and name not in ORDERED:
                crowded[name] = len(here)
    assert not crowded


def test_no_two_files_of_one_name_mean_different_things() -> None:
    places = defaultdict(list)
    for name in modules(ROOT):
        places[name.rpartition(".")[2]].append(name)
    folders = {name.rpartition(".")[0] for name in modules(ROOT)}
    files = {stem: [n for n in names if n not in folders] for stem, names in places.items()}
    twice = {stem: names for stem, names in files.items() if len(names) > 1}
    assert {s: names for s, names in twice.items() if s not in SAME_THING} == {}


def test_no_circle_of_rooms_at_run_time() -> None:
    assert circles(among_siblings(graph(modules(ROOT), types=False))) == []


def test_a_circle_is_seen() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]
