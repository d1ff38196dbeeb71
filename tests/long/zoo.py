"""The applications of examples/app, each under faults by seeds: the wrong ones are invalid, and the
mistake is named; the right ones are valid.

usage: python -m tests.long.zoo run NAME SEED FOLDER | total FOLDER
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.integration.process.app_runs import run_app

APPS = Path(__file__).parents[2] / "examples" / "app"
SEEDS = 10


@dataclass(frozen=True, slots=True)
class Animal:
    """One application, and what its headline has to say."""

    names: str = ""
    options: tuple[str, ...] = ()
    wrong: bool = True


ONCE = ("--exactly-once",)
TOO_EARLY = "the application commits before its output is stored"
TWO_STEPS = "the application writes outputs and commits offsets in two steps"
ZOO = {
    "wrong/commits_first": Animal(TOO_EARLY),
    "wrong/commits_by_timer": Animal(TOO_EARLY),
    "wrong/no_flush": Animal(TOO_EARLY),
    "wrong/acks_1": Animal("which acks=1 acknowledges"),
    "wrong/ignores_errors": Animal("the application commits past an output that was refused"),
    "wrong/reorders": Animal("its producer is not idempotent"),
    "wrong/offsets_beside_the_transaction": Animal(TWO_STEPS, ONCE),
    "wrong/shares_its_id": Animal("have one transactional id", ONCE),
    "right/at_least_once, exactly once demanded": Animal(TWO_STEPS, ONCE),
    "right/at_least_once": Animal(wrong=False),
    "right/commits_async": Animal(wrong=False),
    "right/commits_by_timer": Animal(wrong=False),
    "right/exactly_once": Animal(options=ONCE, wrong=False),
}
BLIND = ("memory_dedup", "no_rewind", "off_by_one", "commit_outside", "random_id")
ZOO |= {
    **{f"second/wrong/{name}": Animal(options=ONCE) for name in BLIND},
    **{
        f"second/wrong/{name}": Animal()
        for name in (
            *("timer_commit", "skip_errors", "thread_pool", "store_on_delivery", "revoke_commit"),
            *("own_retry", "aiokafka_tasks", "latest", "short_flush", "kafka_python_no_wait"),
        )
    },
    **{
        f"second/right/{name}": Animal(options=ONCE * name.startswith("exactly"), wrong=False)
        for name in (
            *("at_least_once", "exactly_once", "exactly_once_random_id", "kafka_python"),
            *("aiokafka_at_least_once", "store_in_order"),
        )
    },
}
"""The second ones were written from the promises of docs/app.md alone: none has to be named."""


def run(name: str, seed: int, folder: Path) -> int:
    """Adds a line to FOLDER/runs.jsonl; 0 where the run ended as it has to."""
    animal = ZOO[name]
    app = f"{sys.executable} {APPS / name.partition(',')[0]}.py"
    here = folder / f"{name.replace('/', '-').replace(', ', '-').replace(' ', '-')}-{seed}"
    here.mkdir(parents=True)
    options = ("--copies=2", "--duration=60", *animal.options)
    verdict = run_app(here, app, *options, seed=seed, timeout_s=590)
    headline = verdict["headline"]
    wanted = "invalid" if animal.wrong else "valid"
    told = wanted == verdict["verdict"] and animal.names in headline
    line = {"name": name, "seed": seed, "verdict": verdict["verdict"], "told": told}
    with (folder / "runs.jsonl").open("a") as log:
        log.write(json.dumps({**line, "headline": headline}) + "\n")
    word = "" if told else ", NOT AS EXPECTED"
    print(f"{name}, seed {seed}: {verdict['verdict']}{word}: {headline}")
    return 0 if told else 1


def total(folder: Path) -> None:
    """One line: of each application, in how many runs it ended as it has to."""
    lines = [json.loads(line) for line in (folder / "runs.jsonl").read_text().splitlines()]
    ran = Counter(line["name"] for line in lines)
    told = Counter(line["name"] for line in lines if line["told"])
    print("; ".join(f"{name}: {told[name]} of {ran[name]}" for name in ZOO if ran[name]))


if __name__ == "__main__":
    verb, *words = sys.argv[1:]
    if verb == "run":
        sys.exit(run(words[0], int(words[1]), Path(words[2])))
    total(Path(words[0]))
