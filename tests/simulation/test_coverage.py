"""The reach of seeds: the marks change nothing, and counts are added up."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from click.testing import CliRunner

from highwater.cli.sim import sim
from highwater.simulation.coverage.branches import MACHINES, all_arms, marked
from highwater.simulation.coverage.reached import KINDS, Coverage, ReachedProblem, there_is
from highwater.simulation.options import Options
from highwater.simulation.seed_outcome import Outcome
from highwater.simulation.seed_run import simulate
from highwater.simulation.seeds import run_seeds

SEED = 3


@pytest.mark.timeout(240)
def test_a_seed_takes_the_same_course_with_coverage_and_without() -> None:
    plain = simulate(SEED, Options(seconds=4))
    (covered,) = _covered(Options(seconds=4, coverage=True))
    assert (covered.digest, covered.steps) == (plain.digest, plain.steps)
    assert not plain.reached
    assert set(covered.reached) == set(KINDS)
    assert "Produce: NONE" in covered.reached["errors"]
    assert "controller's partition: New -> Online" in covered.reached["transitions"]
    assert "partition's role: follower -> leader" in covered.reached["transitions"]
    pairs = covered.reached["pairs"]
    assert any(pair.startswith("its topic is made, then ") for pair in pairs)
    assert any(pair.startswith("during ") for pair in pairs)
    arms = covered.reached["branches"]
    assert any(arm.endswith("def propose") for arm in arms), "of broker/replica/isr.py"
    assert set(arms) < set(all_arms())


def _covered(options: Options) -> list[Outcome]:
    found: list[Outcome] = []
    run_seeds([SEED], options, progress=lambda _, outcome: found.append(outcome))
    return found


SOURCE = '''
def f(x):
    """A number."""
    if x > 2:
        return "large"
    elif x == 2:
        return "two"
    for i in range(x):
        try:
            1 / i
        except ZeroDivisionError:
            pass
    match x:
        case 1:
            return "one" if x else "never"
    return None
'''


@pytest.mark.parametrize(
    ("x", "answer", "taken"),
    [
        (3, "large", ["2 def f", "4 if x > 2"]),
        (2, "two", ["2 def f", "6 if x == 2"]),
        (1, "one", ["2 def f", "8 for in range(x)", "11 except ZeroDivisionError", "14 case 1",
                    "15 x ?", "6 not: if x == 2"]),
        (0, None, ["2 def f", "6 not: if x == 2"]),
    ],
)  # fmt: skip
def test_each_arm_is_marked_and_means_the_same(
    x: int, answer: str | None, taken: list[str]
) -> None:
    tree, arms = marked(SOURCE, "highwater.m")
    table = bytearray(len(arms))
    names: dict[str, object] = {"__reached__": table}
    exec(compile(tree, "m", "exec"), names)
    function = names["f"]
    assert callable(function)
    assert function(x) == answer
    assert function.__doc__ == "A number."
    found = [arm.removeprefix("m.py:") for arm, seen in zip(arms, table, strict=True) if seen]
    assert sorted(found) == sorted(taken)
    assert ast.unparse(ast.parse(SOURCE)) != ast.unparse(tree)


def test_every_machine_has_arms() -> None:
    arms = all_arms()
    for machine in MACHINES:
        path = machine.removeprefix("highwater.").replace(".", "/")
        assert any(arm.startswith(path) for arm in arms), machine
    assert len(set(arms)) > 1000


def test_seeds_are_added_up_and_kept(tmp_path: Path) -> None:
    made = Coverage("abc")
    made.add(4, {"errors": ["Fetch: OFFSET_OUT_OF_RANGE"], "pairs": []})
    made.add(2, {"errors": ["Fetch: OFFSET_OUT_OF_RANGE", "Fetch: NONE"], "pairs": []})
    file = tmp_path / "coverage.json"
    made.write(file)
    again = Coverage("abc")
    again.merge(Coverage.read(file))
    again.merge(Coverage.read(file))
    assert again.seeds == 4
    assert again.found["errors"]["Fetch: OFFSET_OUT_OF_RANGE"] == (4, 2)
    assert again.found["errors"]["Fetch: NONE"] == (2, 2)
    assert "Fetch: NONE" not in again.never("errors")
    assert "Fetch: TOPIC_AUTHORIZATION_FAILED" in again.never("errors")
    assert "coverage of 4 seeds at abc" in again.table()
    with pytest.raises(ReachedProblem, match="name another file"):
        Coverage("def").merge(again)


def test_what_there_is_to_reach_is_taken_from_the_product() -> None:
    assert "ListOffsets: UNSUPPORTED_VERSION" in there_is("errors")
    assert "controller's replica: DeletionStarted -> DeletionSuccessful" in there_is("transitions")
    assert "controller takes ChannelOverflowed" in there_is("transitions")
    assert "during kill: an election" in there_is("pairs")
    assert there_is("branches") == list(dict.fromkeys(all_arms()))


def test_a_file_that_is_no_coverage_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "other.json"
    file.write_text("{}")
    refused = CliRunner().invoke(sim, ["--seeds", "0", "--coverage", str(file)])
    assert refused.exit_code == 2
    assert "it is no coverage of seeds: name another file" in refused.output
    refused = CliRunner().invoke(
        sim, ["--replay", "0", "--trace", "--coverage", str(tmp_path / "new.json")]
    )
    assert refused.exit_code == 2
    assert "leave out --trace" in refused.output
