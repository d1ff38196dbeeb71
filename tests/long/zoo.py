"""The applications of examples/app, each under faults by seeds: the wrong ones are invalid, and the
mistake is named; the right ones are valid.

usage: python -m tests.long.zoo build LANGUAGE FOLDER | run NAME SEED FOLDER | total FOLDER
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from highwater.cluster.processes.zookeeper_process import find_java
from tests.integration.process.app_runs import (
    compiled,
    run_app,
    streams_libs,
    write_log4j,
)

APPS = Path(__file__).parents[2] / "examples" / "app"
SEEDS, FEWER_SEEDS = 10, 3


@dataclass(frozen=True, slots=True)
class Animal:
    """One application, and what its headline has to say."""

    names: str = ""
    options: tuple[str, ...] = ()
    wrong: bool = True
    seeds: int = SEEDS


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
LANGUAGES = ("java", "go", "javascript")
APACHE = ("--target=apache:4.2.0",)
ZOO |= {
    **{
        f"{language}/at_least_once": Animal(wrong=False, seeds=FEWER_SEEDS)
        for language in LANGUAGES
    },
    **{f"{language}/commits_first": Animal(TOO_EARLY, seeds=FEWER_SEEDS) for language in LANGUAGES},
    "wrong/commits_first, on Apache Kafka 4.2": Animal(TOO_EARLY, APACHE, seeds=FEWER_SEEDS),
    "right/at_least_once, on Apache Kafka 4.2": Animal("", APACHE, wrong=False, seeds=FEWER_SEEDS),
    "right/exactly_once, on Apache Kafka 4.2": Animal(
        "", (*APACHE, *ONCE), wrong=False, seeds=FEWER_SEEDS
    ),
}


def _java(name: str, built: Path) -> str:
    """The class that is named as the example, in Java's way."""
    options = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    options += [f"-Dlog4j.configuration=file:{built / 'log4j.properties'}"]
    options += ["-cp", f"{streams_libs()}/*:{built}"]
    return shlex.join([find_java(), *options, name.title().replace("_", "")])


def _python(name: str, built: Path) -> str:
    return f"{sys.executable} {APPS / name}.py"


_COMMANDS: dict[str, Callable[[str, Path], str]] = {
    "java": _java,
    "go": lambda name, built: str(built / "bin" / name),
    "javascript": lambda name, built: f"node {built / name}.js",
}


def build(language: str, folder: Path) -> None:
    """Makes the programs of a language in FOLDER/LANGUAGE, with its own tools."""
    built, source = folder / language, APPS / language
    shutil.rmtree(built, ignore_errors=True)
    if language == "java":
        for file in sorted(source.glob("*.java")):
            compiled(file, built)
        write_log4j(built / "log4j.properties")
        return
    shutil.copytree(source, built)
    install = ["npm", "install", "--silent", "--no-audit", "--no-fund"]
    make = ["go", "build", "-o", "bin/", "./..."]
    tidy = [["go", "mod", "download"]] if language == "go" else []
    for command in [*tidy, make if language == "go" else install]:
        subprocess.run(command, cwd=built, check=True)


def run(name: str, seed: int, folder: Path) -> int:
    """Adds a line to FOLDER/runs.jsonl; 0 where the run ended as it has to."""
    animal = ZOO[name]
    language, _, rest = name.partition(",")[0].partition("/")
    make = _COMMANDS.get(language)
    app = make(rest, folder / language) if make else _python(f"{language}/{rest}", folder)
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
    if verb == "build":
        build(words[0], Path(words[1]))
    else:
        total(Path(words[0]))
