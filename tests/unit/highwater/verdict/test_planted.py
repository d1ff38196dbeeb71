"""Every check finds the faults that were planted for it, and nothing else, in DuckDB."""

from __future__ import annotations

import shutil
from collections import defaultdict
from pathlib import Path

import pytest

from highwater.verdict import catalog, duck, tables
from highwater.verdict.headline import story
from highwater.verdict.location import spark_folder
from highwater.verdict.results import Results
from tests.planted.stories import PLANTS
from tests.planted.story import Plant, write

Found = dict[str, tuple[set[str], set[str]]]
EVERYTHING = 100_000
IMPLIED = {"C12": "C1 C7 C12"}
"""Two acknowledgements for one offset (C12) cannot both be true of it: C1 and C7 say so too."""


def findings(result: Results) -> Found:
    """topic -> (checks with violations, checks with findings set apart)."""
    found: Found = defaultdict(lambda: (set(), set()))
    for id_, check in result["checks"].items():
        for example in check["examples"]:
            found[str(example["topic"])][example["kind"] != "violation"].add(id_)
    return found


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Plant]]:
    run = tmp_path_factory.mktemp("planted")
    topics = write(run, PLANTS)
    tables.build(run)
    return run, topics


@pytest.fixture(scope="module")
def result(planted: tuple[Path, dict[str, Plant]]) -> Results:
    return duck.run_checks(planted[0], EVERYTHING)


@pytest.fixture(scope="module")
def found(planted: tuple[Path, dict[str, Plant]], result: Results) -> Found:
    _, topics = planted
    by_topic = findings(result)
    return {plant.name: by_topic[topic] for topic, plant in topics.items()}


@pytest.mark.thorough
@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.name)
def test_a_plant_is_found_by_its_checks_and_no_other(found: Found, plant: Plant) -> None:
    violations, apart = found[plant.name]
    assert violations == plant.violations, plant.why
    assert apart == plant.apart, plant.why


def test_every_violation_is_told_in_one_line_that_begins_with_its_subject(result: Results) -> None:
    told = {
        story(example): example["topic"]
        for check in result["checks"].values()
        for example in check["examples"]
        if example["kind"] == "violation"
    }
    assert len(set(told.values())) >= sum(bool(plant.violations) for plant in PLANTS)
    for line, topic in told.items():
        assert "\n" not in line
        assert line.startswith(("record ", str(topic))), line


def test_every_check_of_the_history_has_a_plant_of_its_own() -> None:
    alone = {" ".join(sorted(p.violations)) for p in PLANTS}
    apart = {" ".join(sorted(p.apart)) for p in PLANTS}
    for check in catalog.checks():
        if check.id in ("C5", "T8"):  # explains C4; what Kafka allows: never a violation
            assert check.id in apart
        elif check.id.startswith(("C", "G", "T")):
            wanted = IMPLIED.get(check.id, check.id).split()
            assert " ".join(sorted(wanted)) in alone, f"no plant for {check.id} alone"


@pytest.mark.thorough
def test_a_check_that_always_passes_is_noticed(
    planted: tuple[Path, dict[str, Plant]], tmp_path: Path
) -> None:
    """A mutant of the harness: C4 finds nothing in any history."""
    run, topics = planted
    shutil.copytree(spark_folder(), tmp_path / "spark")
    file = tmp_path / "spark" / "checks" / "C4.sql"
    file.write_text(file.read_text().replace("WHERE s.acked AND", "WHERE false AND"))
    by_topic = findings(duck.run_checks(run, EVERYTHING, tmp_path / "spark"))
    missed = [p.name for t, p in topics.items() if by_topic[t][0] != p.violations]
    assert "lost-at-the-end" in missed


@pytest.mark.thorough
def test_a_finding_can_be_read_without_the_history(
    planted: tuple[Path, dict[str, Plant]],
) -> None:
    run, topics = planted
    result = duck.run_checks(run, EVERYTHING)
    topic = next(t for t, p in topics.items() if p.name == "lost-in-the-middle")
    (lost,) = [e for e in result["checks"]["C3"]["examples"] if e["topic"] == topic]
    assert (lost["partition"], lost["offset"]) == (0, 6)
    assert lost["detail"] == (
        f"was acknowledged to {topic}/producer-0 and never read, though 7 was"
    )


@pytest.mark.thorough
def test_examples_are_limited_and_numbers_are_not(planted: tuple[Path, dict[str, Plant]]) -> None:
    result = duck.run_checks(planted[0], 2)
    losses = result["checks"]["C4"]
    assert losses["found"]["violation"] > 2
    assert sum(e["kind"] == "violation" for e in losses["examples"]) == 2


def test_the_stories_are_told_the_same_way_twice() -> None:
    assert [p.tell() for p in PLANTS] == [p.tell() for p in PLANTS]
