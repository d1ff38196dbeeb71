"""The order in which tables, views and checks are worked at."""

from __future__ import annotations

import threading

import pytest

from highwater.verdict import catalog
from highwater.verdict.by_spark.spark_steps import NeverReady, Step, carry_out


def names(*steps: Step, at_a_time: int = 2) -> list[str]:
    return [step.name for step in carry_out(steps, at_a_time)]


def nothing() -> None:
    pass


def test_a_step_waits_for_what_its_query_names() -> None:
    check = Step("C1", nothing, "SELECT 1 FROM reads r JOIN sends s ON true")
    view = Step("reads", nothing, "SELECT 1\nFROM\n  history h")
    assert names(check, Step("sends", nothing), view, Step("history", nothing))[-1] == "C1"
    assert names(check, view, at_a_time=1) == ["reads", "C1"], "sends and history are there"


def test_two_at_a_time_are_at_work_together_and_no_third() -> None:
    both, at_work, most = threading.Barrier(2, timeout=10), 0, 0
    lock = threading.Lock()

    def meet() -> None:
        nonlocal at_work, most
        with lock:
            at_work += 1
            most = max(most, at_work)
        both.wait()
        with lock:
            at_work -= 1

    names(*(Step(str(n), meet) for n in range(4)))
    assert most == 2


def test_what_a_step_raises_ends_the_others() -> None:
    begun: list[str] = []

    def fail() -> None:
        raise ValueError("no history")

    steps = (Step("history", fail), Step("reads", lambda: begun.append("reads"), "FROM history h"))
    with pytest.raises(ValueError, match="no history"):
        names(*steps)
    assert begun == []


def test_a_circle_is_told() -> None:
    with pytest.raises(NeverReady, match="a, b"):
        names(Step("a", nothing, "FROM b"), Step("b", nothing, "JOIN a"))


def test_every_table_and_view_that_a_check_names_is_known() -> None:
    """A name that no step has would not be waited for."""
    tables = {*catalog.TABLES, "topics", "consumed"}
    views = [Step(name, nothing, query) for name, query in catalog.views()]
    order = names(*reversed(views))
    for name, query in catalog.views():
        earlier = order[: order.index(name)]
        for other in {view for view, _ in catalog.views()} - {name}:
            if f"FROM {other} " in query or f"JOIN {other} " in query:
                assert other in earlier, (name, other)
    assert set(order).isdisjoint(tables)
