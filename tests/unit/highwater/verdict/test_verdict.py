"""From findings to one word, on whole run folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from highwater.verdict import runner
from highwater.verdict.conclusion import compare
from highwater.verdict.results import Found, Results
from highwater.verdict.verdict import Verdict
from tests.planted import stories
from tests.planted.stories import PLANTS
from tests.planted.story import Plant, Story, v, write

pytestmark = pytest.mark.thorough

BY_NAME = {plant.name: plant for plant in PLANTS}


def judge(run: Path, *plants: Plant, **info: Any) -> Verdict:
    write(run, plants)
    if info:
        file = run / "run.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | info))
    return runner.run(run, "duckdb", lambda line: None)


def told(story: Any) -> Plant:
    return Plant("told", frozenset(), frozenset(), story, "")


def test_clean_stories_are_valid(tmp_path: Path) -> None:
    """Together: test_planted shows that no check finds anything in one of them."""
    verdict = judge(tmp_path, *(p for p in PLANTS if p.name.startswith("clean")))
    assert verdict.verdict == "valid", verdict.notes
    assert verdict.exit_code == 0
    assert all(c.violations == 0 for c in verdict.checks.values())


def test_a_violation_makes_the_run_invalid_and_is_shown(tmp_path: Path) -> None:
    verdict = judge(tmp_path, BY_NAME["vanished"])
    assert (verdict.verdict, verdict.exit_code) == ("invalid", 1)
    assert [i for i, c in verdict.checks.items() if c.status == "violated"] == ["C15"]
    (example,) = verdict.checks["C15"].examples
    assert example.startswith("t00-vanished-0 offset 6, value t00-vanished|seen: was read by ")


def test_verdict_json_has_the_agreed_keys(tmp_path: Path) -> None:
    judge(tmp_path, BY_NAME["lost-at-the-end"], seen={"not_leader": 3}, planned_faults=0)
    written = json.loads((tmp_path / "verdict.json").read_text())
    assert written["verdict"] == "invalid"
    assert written["seed"] == 0
    assert written["runtime"] == "planted"
    assert set(written["checks"]["C4"]) >= {"examined", "violations", "examples"}
    assert (written["checks"]["C4"]["examined"], written["checks"]["C4"]["violations"]) == (7, 1)
    assert written["seen"]["not_leader"] == 3
    assert written["seen"]["hw_below_leo_at_leader_death"] == 0
    assert written["operations"] == {"acked": 7, "failed": 0, "unknown": 0, "polled": 12}
    assert written["expected_losses"] == 0
    assert written["faults"] == []


def test_what_a_target_lacks_is_idle_and_told_and_never_passed(tmp_path: Path) -> None:
    def unsegmented(s: Story) -> None:
        stories.sound(s)
        stories.finish(s)

    lacks = {"segments": "the brokers' disks are not at hand"}
    checks = {"R5": {"name": "log matching", "examined": 0, "violations": 0, "examples": []}}
    story = told(unsegmented)
    write(tmp_path, [story])
    (tmp_path / "cluster" / "records.jsonl").unlink(missing_ok=True)
    file = tmp_path / "run.json"
    raw = json.loads(file.read_text()) | {"loss_arranged": False, "cluster_checks": checks}
    file.write_text(json.dumps(raw | {"target": "the cluster at h:1", "lacks": lacks}))
    verdict = runner.run(tmp_path, "duckdb", lambda line: None)
    statuses = {id_: verdict.checks[id_].status for id_ in ("C5", "R5")}
    assert set(statuses.values()) == {"idle"}, statuses
    assert "the cluster at h:1 has no segments; what needs it was not checked" in verdict.notes


@pytest.mark.parametrize(
    ("name", "read_back", "word"),
    [
        ("copies-of-a-raised-epoch-that-a-client-read", True, "valid"),
        ("copies-of-one-epoch-that-a-client-read", True, "invalid"),
        ("copies-of-one-epoch-that-a-client-read", False, "unknown"),
    ],
)
def test_reads_tell_copies_apart_where_no_disk_can(
    tmp_path: Path, name: str, read_back: bool, word: str
) -> None:
    lacks = {"segments": "the brokers' disks are not at hand"}
    wanted = {"lacks": lacks, "loss_arranged": False, "final_read": read_back}
    verdict = judge(tmp_path, BY_NAME["clean"], BY_NAME[name], **wanted)
    assert verdict.verdict == word, verdict.notes


def test_expected_losses_are_counted_apart(tmp_path: Path) -> None:
    verdict = judge(tmp_path, BY_NAME["expected-loss-of-acks-1"], BY_NAME["clean"])
    assert verdict.verdict == "valid", verdict.notes
    assert verdict.expected_losses == 1
    assert verdict.checks["C4"].violations == 0


def test_an_arranged_loss_that_nobody_saw_voids_the_run(tmp_path: Path) -> None:
    def lossless(s: Story) -> None:
        s.expect_loss = True
        stories.sound(s)
        stories.finish(s)

    verdict = judge(tmp_path, told(lossless), BY_NAME["clean"])
    assert (verdict.verdict, verdict.exit_code) == ("void", 2)
    assert any("no acknowledged record was lost" in note for note in verdict.notes)


def test_a_fault_without_a_visible_effect_voids_the_run(tmp_path: Path) -> None:
    def faulty(s: Story) -> None:
        stories.sound(s)
        stories.finish(s)
        s.fault("kill", "the leader moved to 2", 100)
        s.fault("hold", None, 200)

    verdict = judge(tmp_path, told(faulty))
    assert verdict.verdict == "void"
    assert verdict.checks["L4"].violations == 1
    assert "hold" in verdict.checks["L4"].examples[0]
    assert [f["effect"] for f in verdict.faults] == ["the leader moved to 2", None]


def test_a_planned_fault_that_never_fired_voids_the_run(tmp_path: Path) -> None:
    verdict = judge(tmp_path, BY_NAME["clean"], planned_faults=2)
    assert verdict.verdict == "void"
    assert "2 faults were planned, 0 fired" in verdict.checks["L4"].examples[0]


def test_an_operation_that_never_succeeded_voids_the_run(tmp_path: Path) -> None:
    def deaf(s: Story) -> None:
        stories.sound(s)
        s.line("admin", "create_topic", "invoke", op=s.operation())
        s.line("admin", "create_topic", "info", op=s.operations)
        stories.finish(s)

    verdict = judge(tmp_path, told(deaf))
    assert verdict.verdict == "void"
    assert verdict.checks["L4"].examples == ["no create_topic ever succeeded"]


def test_a_run_without_operations_is_void_and_never_passed(tmp_path: Path) -> None:
    verdict = judge(tmp_path, told(lambda s: None))
    assert verdict.verdict == "void"
    required = [i for i in verdict.checks if i.startswith("C") and i not in ("C5", "C6")]
    assert {verdict.checks[i].status for i in required} <= {"void", "idle"}
    assert verdict.checks["C4"].status == "void"


def test_nothing_excuses_a_violation(tmp_path: Path) -> None:
    verdict = judge(tmp_path, BY_NAME["vanished"], planned_faults=5)
    assert verdict.checks["L4"].status == "void"
    assert verdict.verdict == "invalid"


def test_without_a_full_read_at_the_end_nothing_is_called_lost(tmp_path: Path) -> None:
    def cut_short(s: Story) -> None:
        stories.sound(s)
        s.read_to_the_end(offsets=[0, 1])

    verdict = judge(tmp_path, told(cut_short), final_read=False)
    assert (verdict.verdict, verdict.exit_code) == ("unknown", 2)
    undecided = [i for i, c in verdict.checks.items() if c.status == "unknown"]
    assert undecided == ["C3", "C4", "C5", "C15", "T3", "T4", "T5", "T7"]


def interrupted(s: Story) -> None:
    """The run ends in the middle of the full read: half of the log is read back, and no disk."""
    stories.sound(s)
    s.fault("kill", "ended by SIGKILL", 200)
    s.line("final", "assign", "ok", partition=0, offset=0, phase="final")
    common = {"op": s.operation(), "n": 2, "partition": 0, "phase": "final", "key": "k"}
    for offset in (0, 1):
        s.line("final", "poll", "ok", offset=offset, value=v(s, f"v{offset}"), **common)
    # librdkafka sent it again after it had raised its epoch, which only the rest could tell
    copy = s.invoke("producer-1", v(s, "copy"), client="confluent-kafka")
    s.end(copy, "ok", 7)
    s.poll("consumer", (6, v(s, "copy")), (7, v(s, "copy")), leader_epoch=1)


UNFINISHED = {"finished": False, "final_read": False, "healed": False}
NOT_FINISHED = ["C2", "C3", "C4", "C5", "C15", "T3", "T4", "T5", "T7", "L2"]


def test_an_interrupted_run_is_void(tmp_path: Path) -> None:
    verdict = judge(tmp_path, told(interrupted), **UNFINISHED)
    assert (verdict.verdict, verdict.exit_code) == ("void", 2), verdict.notes
    assert verdict.notes[0] == "void: the run was interrupted before everything was read back"
    assert [i for i, c in verdict.checks.items() if c.status == "unknown"] == NOT_FINISHED
    assert not any(c.violations for i, c in verdict.checks.items() if i != "L4")


def test_a_history_alone_does_not_say_that_its_full_read_was_completed(tmp_path: Path) -> None:
    write(tmp_path, [told(interrupted)])
    (tmp_path / "run.json").unlink()
    verdict = runner.run(tmp_path, "duckdb", lambda line: None)
    assert verdict.checks["C15"].status == "unknown"


def test_an_interruption_excuses_no_violation_that_needs_no_end(tmp_path: Path) -> None:
    verdict = judge(tmp_path, BY_NAME["two-values-at-one-offset"], **UNFINISHED)
    assert verdict.checks["C1"].status == "violated"
    assert verdict.verdict == "invalid"


def test_an_independent_full_read_decides_what_needs_no_transactions(tmp_path: Path) -> None:
    def read_by_spark(s: Story) -> None:
        stories.sound(s)
        s.spark_reads()

    def transactions_too(s: Story) -> None:
        BY_NAME["clean-transfers"].story(s)
        s.spark_reads()

    def undecided(story: Any, folder: str) -> list[str]:
        verdict = judge(tmp_path / folder, told(story), final_read=False)
        return [i for i, c in verdict.checks.items() if c.status == "unknown"]

    assert undecided(transactions_too, "with") == ["T3", "T4", "T5", "T7"]
    assert undecided(read_by_spark, ".") == []
    (tmp_path / "consumed" / "_temporary").mkdir()  # Spark was killed as it wrote
    verdict = runner.run(tmp_path, "duckdb", lambda line: None)
    assert verdict.checks["C15"].status == "unknown"


def test_a_cluster_that_did_not_heal_is_a_violation(tmp_path: Path) -> None:
    verdict = judge(tmp_path, BY_NAME["clean"], healed=False, problems=["broker 2 exited with 1"])
    assert verdict.verdict == "invalid"
    assert verdict.checks["L2"].violations == 2
    assert "broker 2 exited with 1" in verdict.checks["L2"].examples


def test_no_progress_after_a_fault_is_a_violation(tmp_path: Path) -> None:
    def stuck(s: Story) -> None:
        stories.sound(s)
        s.fault("kill", "the leader moved", s.now)
        s.now += 31_000_000_000
        s.unknown("producer-0", "stuck")
        stories.finish(s)

    verdict = judge(tmp_path, told(stuck))
    assert verdict.checks["L1"].violations == 1
    assert verdict.verdict == "invalid"


def test_progress_may_end_with_the_workload(tmp_path: Path) -> None:
    def ended(s: Story) -> None:
        stories.sound(s)
        s.fault("kill", "the leader moved", s.now)
        stories.finish(s)

    assert judge(tmp_path, told(ended)).verdict == "valid"


def test_engines_that_disagree_are_told_apart() -> None:
    def by(engine: str, examined: int) -> Results:
        found = Found(examined=examined, found={}, examples=[])
        return Results(engine=engine, version="1", checks={"C4": found}, facts={}, seconds=0.1)

    one, other = by("spark", 3), by("duckdb", 4)
    assert compare(one, one) == []
    assert compare(one, other) == ["C4 examined: spark 3, duckdb 4"]


def test_disagreement_makes_the_verdict_unknown() -> None:
    from highwater.verdict import catalog
    from highwater.verdict.decision import decide

    fine = Found(examined=1, found={}, examples=[])
    facts: dict[str, int | None] = dict.fromkeys(("acked", "failed", "unknown", "polled"), 1)
    facts |= {"acked_where_loss_is_expected": 0, "longest_gap_ns": 5_000_000}
    facts["longest_well_ns"] = None
    checks = {c.id: fine for c in catalog.checks()}
    results = Results(engine="spark", version="1", checks=checks, facts=facts, seconds=0.1)
    assert decide(results, {"seed": 1}, [], final_read=True).verdict == "valid"
    split = decide(results, {"seed": 1}, [], final_read=True, disagreements=["C4 examined: 3, 4"])
    assert split.verdict == "unknown"
    assert split.longest_gap_ms == 5
    assert split.longest_while_well_ms is None
