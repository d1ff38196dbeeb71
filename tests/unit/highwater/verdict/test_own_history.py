"""A history of one's own: both engines and its page require the checks of what it claims."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from highwater.verdict import catalog, runner
from highwater.verdict.history_schema import COLUMNS
from highwater.verdict.verdict import Verdict
from tests.planted.stories import sound
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
