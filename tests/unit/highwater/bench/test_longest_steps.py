"""`highwater bench steps`: the table that pages of metrics become, and the reasons to fail."""

from __future__ import annotations

from highwater.bench.loads.steps_loads import LOADS, Load
from highwater.bench.longest_steps import Found, Step, Steps, take


def page(longest: float, over: int, name: str = "handler Fetch") -> dict[str, float]:
    return {
        f'highwater_loop_longeststepms{{step="{name}"}}': longest,
        f'highwater_loop_longstepspersec{{step="{name}"}}': over,
        f'highwater_loop_stepswithoutcpupersec{{step="{name}"}}': 2 * over,
        f'highwater_loop_stepsblockedpersec{{step="{name}"}}': 3 * over,
        "kafka_server_replicamanager_leadercount": 5,
    }


def test_brokers_and_scrapes_are_taken_together() -> None:
    steps: Steps = {}
    counted: dict[tuple[int, str, str], float] = {}
    take(1, page(30, 1), steps, counted)
    take(1, page(25, 3), steps, counted)
    take(2, page(41, 4), steps, counted)
    assert steps == {"handler Fetch": Step(41, 7, 14, 21)}
    take(1, page(5, 1), steps, counted)
    assert steps == {"handler Fetch": Step(41, 8, 16, 24)}, (
        "another process of broker 1 counts anew"
    )


def test_the_table_lists_each_loads_longest_and_what_is_too_long() -> None:
    loads: dict[str, Steps] = {
        "quiet": {"a": Step(3.0, 0, 0), "b": Step(2.5, 0, 0)},
        "loud": {"c": Step(50.0, 2, 0), "d": Step(12.0, 0, 1), "e": Step(4.0, 0, 0)},
        "silent": {},
    }
    found = Found(loads=loads)
    assert [row[0] for row in found.rows()] == [
        "quiet:", "  a", "loud:", "  c", "  d", "silent:", "  none above 2 ms",
    ]  # fmt: skip
    assert "  c         " in found.text()
    assert found.problem() == "longer than 20 ms: c"
    assert Found(loads={"quiet": loads["quiet"]}).problem() == ""


def test_every_load_says_how_much_there_is_of_it() -> None:
    titles = [title(Load(partitions=700, members=70)) for title, _ in LOADS.values()]
    assert len(set(titles)) == len(titles)
    assert sum("700" in title for title in titles) == 2
    assert sum("2100" in title for title in titles) == 1
