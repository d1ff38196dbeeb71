"""Each named scenario, with several seeds; and it fails when the rule that it shows is broken."""

from __future__ import annotations

import pytest

from highwater.simulation.cluster import Shape
from highwater.simulation.scenarios import ALL, Scenario, play
from highwater.simulation.scenarios.script import Stage
from tests.simulation.mutation import all_mutants
from tests.simulation.mutation import play as play_mutant


@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.rare)])
@pytest.mark.parametrize("name", list(ALL))
def test_the_course_of_events(name: str, seed: int) -> None:
    played = play(ALL[name], seed)
    assert played.ok, "\n".join([str(played.problem), str(played.violation), *played.last_events])


def test_a_scenario_whose_events_did_not_happen_fails() -> None:
    async def nothing_happens(stage: Stage) -> None:
        await stage.start(1, 2)
        stage.in_order("broker-1 .*is killed")

    played = play(Scenario("empty", "", Shape(brokers=2, min_isr=1), nothing_happens))
    assert played.problem == "it never happened (in this order): broker-1 .*is killed"
    assert played.last_events


def test_a_seed_gives_one_course_of_events() -> None:
    assert play(ALL["kip-279"], 5).digest == play(ALL["kip-279"], 5).digest
    assert play(ALL["kip-279"], 5).digest != play(ALL["kip-279"], 6).digest


BROKEN = [
    ("unseen-bounce", "53-unseen-bounce-ignored"),
    ("kip-101-divergence", "57-epoch-end-one-too-high"),
    ("kip-279", "64-epoch-end-without-its-epoch"), ("kip-279", "65-epochs-kept-above-a-cut"),
    ("parted-reader", "139-a-lost-tail-of-an-epoch-is-not-told"),
    ("missed-terms", "24-failed-fetch-is-progress"), ("fast-bounce", "19-broker-epoch-ignored"),
    ("early-request", "74-accepts-before-its-epoch"), ("late-update", "75-late-requests-taken"),
    ("steady-commits", "76-stable-offsets-of-a-resting-group-only"),
    ("stop-amid-aborts", "77-fetchers-outlive-the-logs"),
    ("stopped-below-start", "78-starts-anew-one-too-high"),
    ("deleted-while-away", "123-a-log-of-deleted-records-is-kept"),
    ("deletions-wait", "130-what-an-absent-replica-misses-is-removed"),
    ("suspected-meanwhile", "126-a-topic-that-was-new-meanwhile-is-not-read"),
    ("taken-away", "124-a-replica-that-was-taken-away-stays"),
    ("taken-away-down", "124-a-replica-that-was-taken-away-stays"),
    ("above-the-end", "79-ahead-cut-to-the-start"),
    ("above-the-end", "80-epochs-kept-when-starting-anew"),
    ("topics-everywhere", "84-others-not-asked"), ("configs-everywhere", "84-others-not-asked"),
    ("delayed-stop-replica", "17-older-controller-epoch-accepted"),
    ("zombie-controller", "17-older-controller-epoch-accepted"),
    ("zombie-leader", "14-acks-all-at-local-append"),
    ("former-life", "109-an-isr-of-a-former-life"),
    ("compacted-while-away", "118-a-hw-above-a-cut-log"),
    ("copied-to-its-end", "159-a-compacted-log-has-no-end"),
    ("late-marker", "100-a-marker-of-a-former-coordinator"),
    ("marker-sent-again", "158-markers-of-a-connection-given-up"),
    ("late-requests", "339-an-end-of-the-epoch-before"),
    ("deleted-for-good", "113-deleted-until-the-power-goes"),
    ("deleted-meanwhile", "334-a-topic-that-was-deleted-meanwhile-stays"),
]  # fmt: skip


BY_SEEDS = {mutant.name for mutant in all_mutants() if mutant.ci}
"""Found in CI as it is."""


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("scenario", "mutant"),
    [pytest.param(*one, marks=pytest.mark.rare if one[1] in BY_SEEDS else ()) for one in BROKEN],
)
def test_a_scenario_fails_where_its_rule_is_broken(scenario: str, mutant: str) -> None:
    (found,) = [m for m in all_mutants() if m.name == mutant]
    done = play_mutant(found, scenario)
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"{scenario}: FAILED" in done.stdout
