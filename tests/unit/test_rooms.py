"""No room is crowded, and a file's name means one thing; import-linter watches the circles."""

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
    assert len(modules(ROOT)) > 500
    for name in modules(ROOT):
        places[name.rpartition(".")[2]].append(name)
    folders = {name.rpartition(".")[0] for name in modules(ROOT)}
    files = {stem: [n for n in names if n not in folders] for stem, names in places.items()}
    twice = {stem: names for stem, names in files.items() if len(names) > 1}
    assert {s: names for s, names in twice.items() if s not in SAME_THING} == {}


def test_a_circle_is_told_from_one_of_types_alone(tmp_path: Path) -> None:
    """What `python -m tests.circles` prints."""
    sources = {
        "broker/log/a.py": "from broker.log import b",
        "broker/log/b.py": "if TYPE_CHECKING:\n    from broker.log.a import A",
        "broker/net/c.py": "def late():\n    import controller.d",
        "controller/d.py": "from broker.net.c import late",
    }
    for name, text in sources.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = modules(tmp_path)
    at_run_time, with_types = (graph(found, types) for types in (False, True))
    assert circles(at_run_time) == [["broker.net.c", "controller.d"]]
    assert circles(among_siblings(at_run_time)) == [["broker", "controller"]]
    assert sorted(circles(with_types)) == [
        ["broker.log.a", "broker.log.b"], *circles(at_run_time),
    ]  # fmt: skip
