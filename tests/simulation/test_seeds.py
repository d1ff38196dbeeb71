"""A small cluster over many seeds, and the promise that a seed is one course of events."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
import trio

from highwater.simulation.cluster import SimCluster
from highwater.simulation.options import Options
from highwater.simulation.seed_run import simulate
from highwater.simulation.seeds import run_seeds, usual_jobs

SEEDS = (*range(20), 46, 47)
"""The fewest in a row, and those that meet what is rare: `scripts/long sim` has 10,000."""
SECONDS = 10.0


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_no_rule_is_broken() -> None:
    summary = run_seeds(SEEDS, Options(seconds=SECONDS), jobs=usual_jobs())
    for outcome in summary.broken:
        pytest.fail("\n".join([f"seed {outcome.seed}: {outcome.violation}", *outcome.last_events]))
    assert summary.seeds == len(SEEDS)
    assert not summary.never(), "what never happened was not tested"
    assert summary.operations["acked"] > 20 * len(SEEDS)


def test_a_seed_that_does_not_end_breaks_l1(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(self: object, cluster: SimCluster, nursery: trio.Nursery) -> None:
        cluster.start(1)
        cluster.freeze(1)
        while True:
            await trio.sleep(1)

    monkeypatch.setattr("highwater.simulation.seed_run._Run._scenario", scenario)
    monkeypatch.setattr("highwater.simulation.seed_run.LONGEST_S", 100.0)
    found = simulate(1).violation
    assert found is not None
    assert (found.rule, found.time) == ("L1", 130.0)
    assert "not ended after 130 virtual seconds" in found.what


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_nothing_is_lost_with_power_where_every_batch_is_flushed() -> None:
    options = Options(seconds=SECONDS, flush=True)
    summary = run_seeds(range(6), options, jobs=usual_jobs())
    for outcome in summary.broken:
        pytest.fail("\n".join([f"seed {outcome.seed}: {outcome.violation}", *outcome.last_events]))
    assert summary.faults["power loss"] > 2


@pytest.mark.slow
@pytest.mark.parametrize("seed", [100, 101])
@pytest.mark.parametrize(
    ("flags", "counted"),
    [
        ({"transactions": True, "groups": True}, "txn committed"),
        ({"compacted": True}, "acked"),
        ({"trimmed": True}, "records: deletions"),
    ],
    ids=["transactions and groups", "compacted", "trimmed"],
)
def test_workloads_with_power_losses(flags: dict[str, Any], counted: str, seed: int) -> None:
    """Power is lost at any time, or every batch is flushed, and then nothing may be lost."""
    careless = seed % 2 == 0
    options = Options(**flags, pace=0.3, power_loss=careless, flush=not careless)
    outcome = simulate(seed, options)
    assert outcome.ok, str(outcome.violation)
    assert outcome.operations[counted]


_ONE = """
import json
from highwater.simulation.options import Options
from highwater.simulation.seed_run import simulate
print(json.dumps([(o.digest, o.steps) for o in
                  (simulate(seed, Options(seconds=6.0)) for seed in (3, 11))]))
"""


@pytest.mark.timeout(300)
def test_a_seed_gives_one_digest_in_every_process() -> None:
    answers = [
        subprocess.run(
            [sys.executable, "-c", _ONE], env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True, text=True, check=True,
        ).stdout
        for hash_seed in ("0", "4242")
    ]  # fmt: skip
    assert answers[0] == answers[1]
    assert len({digest for digest, _ in json.loads(answers[0])}) == 2


def test_an_unclean_election_is_seen_and_only_where_it_is_allowed() -> None:
    outcome = simulate(13, Options(pace=0.3, unclean=True))
    assert outcome.ok, str(outcome.violation)
    assert outcome.seen["unclean_elections"] > 0
    assert simulate(13, Options(pace=0.3)).seen["unclean_elections"] == 0
