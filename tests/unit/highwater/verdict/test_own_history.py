"""A history of one's own: both engines and its page require the checks of what it claims."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from highwater.verdict import catalog, runner, tables
from highwater.verdict.history_schema import COLUMNS
from highwater.verdict.verdict import Verdict
from tests.planted.stories import PLANTS, sound
from tests.planted.story import Plant, Story, write

PAGE = (Path(__file__).parents[4] / "docs" / "history.md").read_text()
Tell = Callable[[Story], None]


def whole(s: Story, lost: int | None = None) -> None:
    s.operations += 1
    common = {"op": s.operations, "partition": 0, "phase": "final"}
    s.line("final", "full_read", "invoke", **common)
    s.read_to_the_end(offsets=[o for o in s.log.get(0, {}) if o != lost])
    s.line("final", "full_read", "ok", **common)


def without_reads(s: Story) -> None:
    s.send("producer", "v", 0, stored=False)


def with_a_loss(s: Story) -> None:
    sound(s)
    s.send("producer-0", f"{s.topic}|gone", 6)
    whole(s, lost=6)


def read_too_early(s: Story) -> None:
    sound(s)
    whole(s)
    s.send("producer-0", "later", 6)


def only_offered(s: Story) -> None:
    """Transactions of which nothing was read back under read_committed."""
    sound(s)
    s.line("producer-0", "end_txn", "ok", op=99, txn="t", topic=None)
    whole(s)


def as_it_should_be(s: Story) -> None:
    sound(s)
    whole(s)


def write_own(folder: Path, story: Tell) -> None:
    write(folder, [Plant("own", frozenset(), frozenset(), story, "")])
    (folder / "run.json").unlink()
    shutil.rmtree(folder / "consumed", ignore_errors=True)


def judge(folder: Path, story: Tell, engine: runner.Engine = "duckdb") -> Verdict:
    write_own(folder, story)
    return runner.run(folder, engine, lambda line: None, ingest=False)


@pytest.mark.thorough
def test_a_sound_one_is_valid_and_says_what_was_required(tmp_path: Path) -> None:
    verdict = judge(tmp_path, as_it_should_be)
    assert verdict.verdict == "valid", verdict.notes
    required = "C1, C2, C3, C4, C7, C8, C9, C10, C11, C12, C15, L4"
    held = "6 acknowledged writes, 12 records that were read, 0 answers in transactions"
    (told,) = (note for note in verdict.notes if "required are" in note)
    assert told == f"a history of one's own, of {held}; so required are {required}"
    assert all(verdict.checks[id_].status == "passed" for id_ in required.split(", "))
    assert verdict.checks["T3"].status == "idle"


def nothing(s: Story) -> None:
    pass


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("story", "reason"),
    [
        (nothing, "the history holds no acknowledged writes"),
        (without_reads, "the history holds no records that were read"),
        (sound, "t00-own-0 was not read whole (full_read) after the last answer in it"),
        (read_too_early, "t00-own-0 was not read whole (full_read) after the last answer in it"),
        (only_offered, "T3 examined nothing"),
    ],
)
def test_one_that_shows_nothing_is_void(tmp_path: Path, story: Tell, reason: str) -> None:
    verdict = judge(tmp_path, story)
    assert verdict.verdict == "void", verdict.checks
    assert f"void: {reason}" in verdict.notes


@pytest.mark.thorough
def test_a_loss_makes_it_invalid(tmp_path: Path) -> None:
    verdict = judge(tmp_path, with_a_loss)
    assert verdict.verdict == "invalid"
    assert verdict.headline.startswith("record 6 of t00-own-0 was acknowledged to ")


def claiming(plant: Plant) -> Plant:
    """It says that its last read was a whole one."""

    def tell(s: Story) -> None:
        plant.story(s)
        for partition in s.log:
            s.operations += 1
            common = {"op": s.operations, "partition": partition, "phase": "final"}
            s.line("final", "full_read", "invoke", **common)
            s.line("final", "full_read", "ok", **common)

    return replace(plant, story=tell)


def of_plants(folder: Path, plants: Sequence[Plant]) -> Verdict:
    write(folder, [claiming(plant) for plant in plants])
    (folder / "run.json").unlink()
    shutil.rmtree(folder / "consumed", ignore_errors=True)
    return runner.run(folder, "duckdb", lambda line: None, ingest=False)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "verdict"), [("copies-of-one-epoch", "unknown"), ("idempotent-copies", "invalid")]
)
def test_a_second_copy_by_librdkafka_is_left_undecided(
    tmp_path: Path, name: str, verdict: str
) -> None:
    assert of_plants(tmp_path, [p for p in PLANTS if p.name == name]).verdict == verdict


@pytest.mark.thorough
def test_each_required_check_finds_its_fault(tmp_path: Path) -> None:
    claimed = {check.id for check in catalog.checks() if check.claim}
    # librdkafka's own copies leave C2 undecided
    faulty = [p for p in PLANTS if p.violations & claimed and not p.name.startswith("copies-of-")]
    verdict = of_plants(tmp_path, faulty)
    assert verdict.verdict == "invalid"
    violated = {id_ for id_, check in verdict.checks.items() if check.status == "violated"}
    assert claimed <= violated, claimed - violated


def of_unknown_outcome(s: Story) -> None:
    """One send is answered by a time-out, one by nothing; one of the two records is there."""
    sound(s)
    s.end(s.invoke("producer-0", f"{s.topic}|timed out"), "info", error="_TIMED_OUT")
    s.invoke("producer-0", f"{s.topic}|unanswered")
    s.log[0][6] = ("k", f"{s.topic}|unanswered")
    whole(s)


def refused_and_stored(s: Story) -> None:
    sound(s)
    s.end(s.invoke("producer-0", f"{s.topic}|refused"), "fail", error="MESSAGE_TOO_LARGE")
    s.log[0][6] = ("k", f"{s.topic}|refused")
    whole(s)


def swapped(**fields: int | bool) -> Tell:
    def story(s: Story) -> None:
        """A producer's second record stands before its first."""
        sound(s)
        first = s.invoke("producer-0", f"{s.topic}|a", **fields)
        second = s.invoke("producer-0", f"{s.topic}|b", **fields)
        for send, offset in ((first, 7), (second, 6)):
            s.end(send, "ok", offset)
            s.log[0][offset] = ("k", send["value"])
        whole(s)

    return story


def lost(**fields: int | bool) -> Tell:
    def story(s: Story) -> None:
        sound(s)
        s.expect_loss = bool(fields.pop("expect_loss", False))
        s.send("producer-0", f"{s.topic}|gone", 6, stored=False, **fields)
        whole(s)

    return story


def sent_by_nobody(s: Story) -> None:
    sound(s)
    s.log[0][6] = ("k", f"{s.topic}|of a sender that is not in the history")
    whole(s)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("story", "violated"),
    [
        (of_unknown_outcome, []),
        (refused_and_stored, ["C6"]),
        (sent_by_nobody, ["C7"]),
        (swapped(idempotent=False, max_in_flight=1), ["C10"]),
        (swapped(idempotent=False, max_in_flight=5), []),
        (swapped(idempotent=False), []),
        (lost(), ["C4"]),
        (lost(acks=1), []),
        (lost(expect_loss=True), []),
    ],
)
def test_what_a_field_or_an_ending_claims(tmp_path: Path, story: Tell, violated: list[str]) -> None:
    verdict = judge(tmp_path, story)
    assert [id_ for id_, check in verdict.checks.items() if check.status == "violated"] == violated


@pytest.mark.thorough
def test_a_topic_that_others_feed_has_no_sender_to_look_for(tmp_path: Path) -> None:
    write_own(tmp_path, as_it_should_be)
    lines = (tmp_path / "history.jsonl").read_text().splitlines(keepends=True)
    fed = {"process": "reader", "client": "own", "topic": "fed", "partition": 0, "t_ns": 1}
    fed |= {"run": "planted", "f": "poll", "type": "ok", "op": 9999, "n": 1, "index": 9999}
    read = json.dumps({**fed, "offset": 0, "key": "k", "value": "of others"}) + "\n"
    claim = [
        json.dumps({**fed, "f": "full_read", "type": type_, "phase": "final", "op": 10_000}) + "\n"
        for type_ in ("invoke", "ok")
    ]
    assert _judged(tmp_path, [*lines, read, *claim]).checks["C7"].status == "passed"


def _judged(folder: Path, lines: list[str]) -> Verdict:
    (folder / "history.jsonl").write_text("".join(lines))
    return runner.run(folder, "duckdb", lambda line: None, ingest=False)


@pytest.mark.thorough
def test_a_torn_last_line_is_left_out_and_another_one_is_refused(tmp_path: Path) -> None:
    write_own(tmp_path, as_it_should_be)
    lines = (tmp_path / "history.jsonl").read_text().splitlines(keepends=True)
    assert _judged(tmp_path, [*lines, lines[0][:20]]).verdict == "valid"
    with pytest.raises(tables.RunUnreadable, match=r"history\.jsonl cannot be read: .* in line \d"):
        _judged(tmp_path, [lines[0], lines[1][:20] + "\n", *lines[2:]])


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.rare  # test_spark_job has a valid one in a session of its own
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("story", "word"), [(as_it_should_be, "valid"), (nothing, "void")])
def test_spark_says_the_same(tmp_path: Path, story: Tell, word: str) -> None:
    verdict = judge(tmp_path, story, "spark")
    assert (verdict.engine, verdict.verdict) == ("spark", word), verdict.notes


def test_the_page_has_the_schema_and_the_claims() -> None:
    fields = re.findall(r"^\| `(\w+)` \| (\w+) \|", PAGE, re.MULTILINE)
    assert dict(fields) == COLUMNS
    table = PAGE.split("| the history holds | required |")[1].split("\n\n")[0]
    claimed = {check.id for check in catalog.checks() if check.claim}
    assert set(re.findall(r"[A-Z]\d+", table)) == claimed
