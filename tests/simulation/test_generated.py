"""The mutants made by rule: which ones there are, the sample, and what is kept of a trial."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from tests.simulation.generated.maker import ROOMS, ROOT, RULES, Made, everything, make
from tests.simulation.generated.page import KINDS, TESTED, explanations, render
from tests.simulation.generated.reach import Reach
from tests.simulation.generated.samples import sample, shares, wilson
from tests.simulation.generated.trial import with_marks
from tests.simulation.generated.trials import Rows, verdict

FILE = "broker/log/some.py"


def changed(body: str, name: str = "f") -> set[tuple[str, str]]:
    """The rules and the changed bodies of a function's mutants, in one line each."""
    data = f"def {name}(self):\n    {body}\n".encode()
    found = set()
    for made in make(FILE, data):
        text = made.applied(data).decode()
        ast.parse(text)
        found.add((made.rule, " ".join(text.split("\n", 1)[1].split())))
    return found


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("if self.a: return 1", {("negate", "if (not (self.a)): return 1")}),
        ("if not self.a: return 1", {("negate", "if bool((self.a)): return 1")}),
        ("while self.a: return 1", {("negate", "while (not (self.a)): return 1")}),
        ("return 1 if self.a else 2", {("negate", "return 1 if (not (self.a)) else 2")}),
        ("return [x for x in y if x]", {("negate", "return [x for x in y if (not (x))]")}),
        ("self.go()", {("drop", "pass")}),
        ("raise KeyError(1 + 1)", {("drop", "pass")}),
        ("a[0] = b", {("drop", "pass")}),
        ("a += b", {("drop", "pass")}),
        ("return a < b", {("bound", "return a <= b")}),
        ("return a >= b", {("bound", "return a > b")}),
        ("yield (a) < b < 1", {("bound", "yield (a) <= b < 1"), ("bound", "yield (a) < b <= 1")}),
        ("return a + 1", {("bound", "return a + 0")}),
        ("return a == 2", {("bound", "return a == 3")}),
        ("return g(a, b)", {("swap", "return g(b, a)")}),
        ("return g(a, b, c)", {("swap", "return g(b, a, c)"), ("swap", "return g(a, c, b)")}),
        ("self.a = b", {("stale", "pass")}),
        ("return max(a, b)", {("stale", "return min(a, b)")}),
        ("async def g(): await h()", {("drop", "async def g(): pass")}),
    ],
)  # fmt: skip
def test_each_rule(body: str, expected: set[tuple[str, str]]) -> None:
    assert changed(body) == expected


@pytest.mark.parametrize(
    "body",
    [
        '"""A docstring."""',
        'log.info("%d is %s", a + 1, b)',
        'logger.warning("%s", max(a, b))',
        "assert a < b",
        "self._metrics.gauge(a, b)",
        "stats.bytes_in += size",
        "if TYPE_CHECKING: go()",
        "def __repr__(self): return g(a, b)",
        "return isinstance(a, b)",
        "return g(a, a)",
        "while True: return",
        "x: g(a, b) = 1",
    ],
)
def test_what_nothing_outside_can_tell_is_left_out(body: str) -> None:
    assert changed(body) == set()


def test_a_partition_log_is_not_a_logger() -> None:
    assert changed("log.append(a)") == {("drop", "pass")}


def test_an_init_keeps_its_attributes_and_a_module_its_constants() -> None:
    assert changed("self.a = b", "__init__") == set()
    assert make(FILE, b"A = max(1, 2)\nclass B:\n    c = g(1, 2)\n") == []


def test_places_count_bytes() -> None:
    assert changed('return g("höher", b)') == {("swap", 'return g(b, "höher")')}


def test_an_id_outlives_lines_above_it_and_tells_equal_lines_apart() -> None:
    body = b"def f(a):\n    a.go()\n    a.go()\n"
    before, after = make(FILE, body), make(FILE, b"import os\n\n" + body)
    assert [made.id for made in before] == [made.id for made in after]
    assert len({made.id for made in before}) == 2
    assert [made.line for made in after] == [4, 5]
    (changed_line, _) = make(FILE, body.replace(b"a.go()", b"a.gone()", 1))
    assert changed_line.id != before[0].id
    assert changed_line.around != before[0].around


@pytest.mark.thorough
def test_all_of_them_are_python_and_have_an_id_of_their_own() -> None:
    mutants = everything()
    assert len(mutants) >= 1000
    assert len({made.id for made in mutants}) == len(mutants)
    assert {made.room for made in mutants} == set(ROOMS)
    assert {made.rule for made in mutants} == set(RULES)
    sources = {made.file: (ROOT / made.file).read_bytes() for made in mutants}
    for made in mutants[::40]:
        compile(made.applied(sources[made.file]), made.file, "exec")


def made_in(room: str, rule: str, count: int) -> list[Made]:
    return [
        Made(f"{room}/a.py", n, 0, n, rule, f"f{n}", "x", 0, 0, 1, "pass", "go()")
        for n in range(count)
    ]


def test_the_sample_has_its_part_of_each_stratum_and_stays_when_others_go() -> None:
    log, replica = made_in("broker/log", "drop", 300), made_in("broker/replica", "swap", 100)
    chosen = sample([*log, *replica], 40)
    assert sum(made.room == "broker/log" for made in chosen) == 30
    assert chosen == sample([*replica, *reversed(log)], 40)
    assert chosen != sample([*log, *replica], 40, seed=1)
    assert [made.rule for made in chosen] != sorted(made.rule for made in chosen)
    assert len(set(chosen) & set(sample([*log[1:], *replica], 40))) >= 39


def test_the_parts_add_up() -> None:
    assert shares({("a", ""): 1, ("b", ""): 1, ("c", ""): 1}, 2) == {
        ("a", ""): 1,
        ("b", ""): 1,
        ("c", ""): 0,
    }
    assert sum(shares({("a", ""): 7, ("b", ""): 2}, 100).values()) == 9


@pytest.mark.parametrize(
    ("found", "of", "low", "high"),
    [(0, 0, 0, 1), (0, 10, 0, 0.278), (90, 100, 0.826, 0.945), (300, 300, 0.987, 1)],
)
def test_the_interval_is_wilsons(found: int, of: int, low: float, high: float) -> None:
    assert wilson(found, of) == pytest.approx((low, high), abs=5e-4)


def test_a_statement_that_runs_is_marked() -> None:
    source = (
        b'def f(a):\n    """Doc."""\n    if a:\n        return 1\n    elif a is None:\n'
        b"        return 2\n    try:\n        g()\n    except NameError:\n        return 3\n"
    )
    table = bytearray(12)
    names: dict[str, Any] = {"__statements__": table}
    exec(compile(with_marks(source), "f", "exec"), names)
    assert names["f"](1) == 1
    assert [n for n, seen in enumerate(table) if seen] == [3, 4]
    assert names["f"](0) == 3
    assert [n for n, seen in enumerate(table) if seen] == [3, 4, 5, 7, 8, 10]


def test_covering_runs_take_turns_by_kind_and_the_cheapest_is_first(tmp_path: Path) -> None:
    costs = [("a", 0, 5.0), ("a", 1, 1.0), ("b", 2, 3.0), ("b", 3, 2.0), ("c", 4, 0.1)]
    runs = [{"seed": seed, "options": {kind: True}, "cost": cost} for kind, seed, cost in costs]
    reach = Reach({}, runs, {"broker/log/a.py": {0: [0, 1, 2, 3]}})
    reach.write(tmp_path / "reach.json.gz")
    reach = Reach.read(tmp_path / "reach.json.gz")
    (made,) = made_in("broker/log", "drop", 1)
    assert [run["seed"] for run in reach.covering(made)] == [1, 3, 0, 2]
    further = reach.further(made, 3)
    assert [(run["seed"], *run["options"]) for run in further] == [
        (1000, "a"), (1001, "b"), (1002, "a"),
    ]  # fmt: skip
    assert reach.further(made_in("broker/log", "drop", 2)[1], 3) == []


BEGIN, END = {"begin": 0, "used": 1.0}, {"end": 0, "used": 3.0, "cpu": 2.0}
BROKEN = {**END, "rule": "R1", "what": "lost", "replay": "highwater sim --replay 7"}
SECOND = {"begin": 1, "used": 3.0}


@pytest.mark.parametrize(
    ("lines", "timed_out", "expected"),
    [
        ([BEGIN, BROKEN], False, "found"),
        ([BEGIN, END], False, "survived"),
        ([BEGIN, {**END, "error": "ValueError"}], False, "error"),
        ([BEGIN, {**END, "error": "ValueError"}, SECOND, {**BROKEN, "end": 1}], False, "found"),
        ([BEGIN, END, SECOND], False, "hangs"),
        ([BEGIN, END, {**SECOND, "used": 50.0}], False, "survived"),
        ([BEGIN, END, {**SECOND, "used": 50.0}], True, "hangs"),
        ([], False, "error"),
    ],
)
def test_the_verdict(lines: list[dict[str, Any]], timed_out: bool, expected: str) -> None:
    runs = [{"seed": n, "options": {}, "cost": 2.0} for n in range(2)]
    row = verdict(lines, runs, cpu_s=60, timed_out=timed_out, complaint="killed")
    assert row["verdict"] == expected
    assert (row.get("by") == "R1") == (expected == "found")


def row_of(made: Made, said: str, **more: Any) -> dict[str, Any]:
    return {"id": made.id, "around": made.around, "commit": "abc", "verdict": said, **more}


def test_a_row_counts_until_its_function_changes_and_a_torn_line_never(tmp_path: Path) -> None:
    one, other, third = made_in("broker/log", "drop", 3)
    rows = Rows(tmp_path / "rows.jsonl")
    rows.add(row_of(one, "survived", runs=1))
    rows.add({**row_of(other, "found"), "around": "y"})
    with rows.path.open("a") as file:
        file.write("\n" + json.dumps(row_of(third, "found"))[:-5])
    rows.add(row_of(one, "found", by="R1"))
    again = Rows.read(rows.path)
    found = again.of(one)
    assert found is not None
    assert found["verdict"] == "found"
    assert again.of(other) is None
    assert again.of(third) is None


def test_the_page_adds_up_and_explains_survivors(tmp_path: Path) -> None:
    made = made_in("broker/log", "drop", 6)
    rows = Rows(tmp_path / "rows.jsonl")
    for mutant, row in zip(
        made,
        [
            row_of(made[0], "found", by="R1"), row_of(made[1], "hangs"),
            row_of(made[2], "survived", runs=9), row_of(made[3], "survived", runs=9),
            row_of(made[4], "not reached"),
        ],
        strict=False,
    ):  # fmt: skip
        assert mutant.id == row["id"]
        rows.add(row)
    explained = {made[2].id: "equivalent: a | b", made[4].id: "test: test_it.py"}
    page = render(made, 5, made, rows, explained, 60)
    assert "6 mutants were made; seeds run the statements of 5" in page
    assert "Of the sample of 6, 5 have been run, at abc" in page
    assert "| found, of all that were run | 2 of 5, 40.0 %" in page
    assert "| found, of those that a seed reaches | 2 of 4, 50.0 %" in page
    assert "| the same, without the equivalent and the harmless | 2 of 3, 66.7 %" in page
    assert "1 equivalent, 0 harmless, 0 gap, 1 not explained yet" in page
    assert "| broker/log | 5 | 1 | 1 | 2 | 0 | 1 | 40 % |" in page
    assert r"equivalent: a \| b" in page
    assert page.count("not explained yet") == 2
    assert "| test_it.py |" in page


def test_every_explanation_has_a_kind() -> None:
    assert {text.partition(":")[0] for text in explanations().values()} <= {*KINDS, TESTED}
