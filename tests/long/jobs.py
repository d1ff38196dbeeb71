"""The long runs: which commands each one is made of, and what is kept of it.

A job is a list of steps, each with a name of its own.  A step that has ended is not run again, and
a simulation that was cut off goes on by its log (`highwater sim --log`).
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.long import new_groups
from tests.long.coverage import BEFORE, FLAGS, SETS
from tests.long.known_bugs import BUGS
from tests.long.streams import GUARANTEES
from tests.long.targets import FURTHER, TARGETS
from tests.long.zoo import LANGUAGES, SEEDS, ZOO

RUNS = Path(__file__).parents[2] / "artifacts" / "long-runs"
HIGHWATER = (sys.executable, "-m", "highwater.cli.main")


@dataclass(frozen=True, slots=True)
class Step:
    """One command; `log` is the file that tells what came of it.  One that `sums` what the others
    left is run again when any of them has run."""

    name: str
    command: tuple[str, ...]
    log: Path | None = None
    sums: bool = False


Steps = Callable[[Path, bool], Iterator[Step]]
"""The steps of a job, given its folder, and whether only a slice of two minutes is wanted."""


@dataclass(frozen=True, slots=True)
class Job:
    what: str
    steps: Steps


def _simulation(name: str, folder: Path, seeds: str, *options: str) -> Step:
    log = folder / f"{name}.jsonl"
    command = (
        *HIGHWATER,
        *("sim", "--seeds", seeds, "--jobs", "0", "--keep-going", "--finds", "1000000"),
        *("--log", str(log), *options),
    )
    return Step(name, command, log)


def _together(size: int, seeds: str) -> Steps:
    def steps(folder: Path, a_slice: bool) -> Iterator[Step]:
        """All sets of so many flags; of a slice, each flag with those that follow it."""
        neighbours = zip(*(FLAGS[n:] + FLAGS[:n] for n in range(size)), strict=True)
        for flags in neighbours if a_slice else itertools.combinations(FLAGS, size):
            options = [*(f"--{flag}" for flag in flags), "--pace", "0.3"]
            options += ["--seconds", "5"] * a_slice
            yield _simulation("+".join(flags), folder, "0..0" if a_slice else seeds, *options)

    return steps


NEW: Mapping[str, tuple[str, ...]] = {
    "consumer-groups": ("--consumer-groups",),
    "share-groups": ("--share-groups",),
    "epoch-bumps": ("--transactions", "--epoch-bumps"),
}
"""What clients of Kafka 4 bring, by the options that play it."""
BESIDE_NEW = (
    "joints", "stalls", "power-loss", "disk-errors", "log-dirs", "admin", "retained", "compacted",
)  # fmt: skip
ALONE, WITH_ANOTHER = 120, 110
"""Seeds of each: 3,000 together."""


def new_flags(folder: Path, a_slice: bool) -> Iterator[Step]:
    """Each alone, and with each flag that it could meet; of a slice, a seed of each alone."""
    first = 300_000
    for name, options in NEW.items():
        for beside in ("", *BESIDE_NEW)[: 1 if a_slice else None]:
            count = 1 if a_slice else WITH_ANOTHER if beside else ALONE
            seeds, more = f"{first}..{first + count - 1}", [f"--{beside}"] if beside else []
            first += count
            step = f"{name}+{beside}" if beside else name
            yield _simulation(step, folder, seeds, *options, *more, "--pace", "0.3")


def _seeds(count: int, *options: str) -> Steps:
    def steps(folder: Path, a_slice: bool) -> Iterator[Step]:
        yield _simulation("seeds", folder, f"0..{9 if a_slice else count - 1}", *options)

    return steps


def _module(name: str, whole: tuple[str, ...], a_part: tuple[str, ...]) -> Steps:
    def steps(folder: Path, a_slice: bool) -> Iterator[Step]:
        yield Step("all", (sys.executable, "-m", name, *(a_part if a_slice else whole)))

    return steps


def _targets(name: str, chosen: tuple[str, ...]) -> Steps:
    """Ten seeds of each target, one target after another; of a slice, one run."""

    def steps(folder: Path, a_slice: bool) -> Iterator[Step]:
        place = RUNS / (f"{name}-slice" if a_slice else name)
        module = (sys.executable, "-m", "tests.long.targets")
        for target in chosen[:1] if a_slice else chosen:
            for seed in range(1 if a_slice else 10):
                step = f"{target.removeprefix('apache:')}-seed-{seed}"
                yield Step(step, (*module, "run", target, str(seed), str(place / step)))
        yield Step("total", (*module, "total", str(place)), sums=True)

    return steps


def known_bugs(folder: Path, a_slice: bool) -> Iterator[Step]:
    """Five runs of each bug on each release; of a slice, one."""
    place = RUNS / ("known-bugs-slice" if a_slice else "known-bugs")
    module = (sys.executable, "-m", "tests.long.known_bugs")
    for bug, of in list(BUGS.items())[: 1 if a_slice else None]:
        for release in of.releases[: 1 if a_slice else None]:
            for seed in range(1 if a_slice else 5):
                step = f"{bug}-{release}-seed-{seed}"
                yield Step(step, (*module, "run", bug, release, str(seed), str(place / step)))
    yield Step("total", (*module, "total", str(place)), sums=True)


def groups_of_today(folder: Path, a_slice: bool) -> Iterator[Step]:
    """Each workload on each target by ten seeds, the targets in turn; of a slice, one run."""
    place = RUNS / ("new-groups-slice" if a_slice else "new-groups")
    module = (sys.executable, "-m", "tests.long.new_groups")
    for workload in new_groups.WORKLOADS[: 1 if a_slice else None]:
        for seed in range(1 if a_slice else new_groups.SEEDS):
            for target in new_groups.TARGETS[: 1 if a_slice else None]:
                step = new_groups.name_of(workload, target, seed)
                words = ("run", workload, target, str(seed), str(place / step))
                yield Step(step, (*module, *words))
    yield Step("total", (*module, "total", str(place)), sums=True)


def streams(folder: Path, a_slice: bool) -> Iterator[Step]:
    """Five seeds of each guarantee; of a slice, one."""
    for seed in range(1 if a_slice else 5):
        for guarantee in GUARANTEES:
            name = f"{guarantee}-seed-{seed}"
            words = ("-m", "tests.long.streams", guarantee, str(seed), str(folder / name))
            yield Step(name, (sys.executable, *words))


def zoo(folder: Path, a_slice: bool) -> Iterator[Step]:
    """Each application by ten seeds, some by three; of a slice, the first two by one."""
    module = (sys.executable, "-m", "tests.long.zoo")
    for language in LANGUAGES[: 0 if a_slice else None]:
        yield Step(f"{language}-build", (*module, "build", language, str(folder)))
    for seed in range(1 if a_slice else SEEDS):
        for name in list(ZOO)[: 2 if a_slice else None]:
            if seed >= ZOO[name].seeds:
                continue
            words = ("run", name, str(seed), str(folder))
            yield Step(f"{name.replace('/', '-').replace(' ', '-')}-seed-{seed}", (*module, *words))
    yield Step("total", (*module, "total", str(folder)), sums=True)


def planted(folder: Path, a_slice: bool) -> Iterator[Step]:
    """50 folders of 100 histories; of a slice, one of 20."""
    count, file = 20 if a_slice else 100, str(folder / "measured.jsonl")
    module = (sys.executable, "-m", "tests.long.planted")
    for first in range(0, count if a_slice else 5_000, count):
        yield Step(f"from-{first}", (*module, "judge", file, str(first), str(count)))
    yield Step("total", (*module, "total", file), sums=True)


def generated_mutants(folder: Path, a_slice: bool) -> Iterator[Step]:
    """The sample; of a slice, a minute of it on a map of two seeds."""
    place = ("--folder", str(folder))
    short = ("--few", "--minutes", "1", "--out", str(folder / "page.md"))
    module = (sys.executable, "-m", "tests.simulation.generated", "all", *place)
    yield Step("all", (*module, *(short if a_slice else ())))


def mutants_pin(folder: Path, a_slice: bool) -> Iterator[Step]:
    """Twenty parts, and the page; of a slice, one of sixty."""
    module = (sys.executable, "-m", "tests.simulation.pinned")
    parts = 60 if a_slice else 20
    for number in range(1 if a_slice else parts):
        words = ("part", str(folder), str(number), str(parts))
        yield Step(f"part-{number}", (*module, *words))
    if not a_slice:
        yield Step("page", (*module, "page", str(folder)), sums=True)


def coverage(folder: Path, a_slice: bool) -> Iterator[Step]:
    """Both trees' sets in turn, and the page; of a slice two seeds of this tree, and no page."""
    module = (sys.executable, "-m", "tests.long.coverage")
    if a_slice:
        yield Step("now-0", (*module, "part", str(folder), "0", "", "2"))
    else:
        for number in range(len(SETS)):
            for commit in ("", BEFORE):
                words = ("part", str(folder), str(number), commit)
                yield Step(f"{commit or 'now'}-{number}", (*module, *words))
    yield Step("page", (*module, "total" if a_slice else "page", str(folder)), sums=True)


def _page(runtime: str) -> Steps:
    name = f"test_the_page_elsewhere[{runtime}]"
    words = (f"tests/integration/process/test_pytest_plugin.py::{name}",)
    return _module("pytest", words, words)


def _scale(*sizes: tuple[str, str]) -> Steps:
    """One step a size, and the page at the end; of a slice the smallest, and no page."""

    def steps(folder: Path, a_slice: bool) -> Iterator[Step]:
        module = (sys.executable, "-m", "tests.long.spark_scale")
        # all sizes are in one table
        place = folder if a_slice else folder.with_name("spark-scale")
        file = str(place / "measured.jsonl")
        for operations, skew in (("100000", sizes[-1][1]),) if a_slice else sizes:
            yield Step(f"{operations}-{skew}", (*module, "measure", file, operations, skew))
        yield Step("page", (*module, "show" if a_slice else "page", file), sums=True)

    return steps


SCALES = (
    ("100000", "0"), ("1000000", "0"), ("1000000", "0.9"), ("10000000", "0"), ("10000000", "0.9"),
)  # fmt: skip


PLAYS, PLAYS_A_PART = 1000, 50
SURFACES = {
    "logins": ("500000", "2000"), "calls": ("500000", "2000"),
    "metrics": ("50000", "500"), "control": ("50000", "500"), "tls": ("50000", "500"),
}  # fmt: skip
"""How many inputs each gets, and in a slice."""


def fuzz(folder: Path, a_slice: bool) -> Iterator[Step]:
    """Parts of 10,000 requests, each against a broker of its own; a client beside; damaged logs."""
    module = (sys.executable, "-m", "tests.long.fuzz")
    for part in range(1 if a_slice else 100):
        what, number = ("open", part // 4) if part % 4 == 3 else ("requests", part)
        count = "500" if a_slice else "10000"
        place = str(folder / f"part-{part}")
        yield Step(f"{part}-{what}", (*module, what, count, place, str(number * 100_000)))
    beside = (sys.executable, "-m", "tests.long.fuzz_beside")
    yield Step("beside", (*beside, "200" if a_slice else "3000"))
    count = "1000" if a_slice else "100000"
    yield Step("files", (*module, "files", count, str(folder / "files")))
    told = (sys.executable, "-m", "tests.long.fuzz_told", str(folder))
    yield Step("told", told, sums=True)


def fuzz_surfaces(folder: Path, a_slice: bool) -> Iterator[Step]:
    module = (sys.executable, "-m", "tests.long.fuzz_surfaces")
    for what, whole in SURFACES.items():
        yield Step(what, (*module, what, whole[a_slice]))
    for first in range(0, PLAYS_A_PART if a_slice else PLAYS, PLAYS_A_PART):
        words = ("znodes", "10" if a_slice else str(PLAYS_A_PART), str(first))
        yield Step(f"znodes-{first}", (*module, *words))
    yield Step("told", (*module, "told", str(folder)), sums=True)


def zookeeper(*runs: tuple[str, int, int, int]) -> Steps:
    """Of each what, how many, in how many parts, and how many in a slice."""

    def steps(folder: Path, a_slice: bool) -> Iterator[Step]:
        module = (sys.executable, "-m", "tests.long.zookeeper_runs")
        for what, count, parts, few in runs:
            size = few if a_slice else count // parts
            for first in range(0, size if a_slice else count, size):
                yield Step(f"{what}-{first}", (*module, what, str(size), str(first)))
        yield Step("told", (*module, "told", str(folder)), sums=True)

    return steps


def soak(folder: Path, a_slice: bool) -> Iterator[Step]:
    """Half an hour; of a slice, a minute and a half."""
    words = ("-m", "tests.long.soak", str(folder), "90" if a_slice else "1800")
    yield Step("soak", (sys.executable, *words))


def greens(folder: Path, a_slice: bool) -> Iterator[Step]:
    """Three runs each; of a slice, a file each."""
    module = (sys.executable, "-m", "tests.long.greens")
    for number in range(1 if a_slice else 3):
        for how in ("quiet", "busy"):
            paths = ("tests/unit/test_rooms.py",) if a_slice else ()
            yield Step(f"{how}-{number + 1}", (*module, "run", how, *paths))
    yield Step("total", (*module, "total", str(folder)), sums=True)


def fresh_clone(folder: Path, a_slice: bool) -> Iterator[Step]:
    """With what pip and uv have in their caches, and without."""
    module = (sys.executable, "-m", "tests.long.fresh_clone")
    yield Step("with-caches", module)
    if not a_slice:
        yield Step("without-caches", (*module, "--without-caches"))


def made_batches(folder: Path, a_slice: bool) -> Iterator[Step]:
    """Numbers that no test of CI plays."""
    words = ("MADE_FROM=1000", f"MADE_BATCHES={200 if a_slice else 10_000}")
    test = "tests/integration/oracle/test_made_batches.py"
    yield Step("all", ("env", *words, sys.executable, "-m", "pytest", "-q", "-s", test))
    told = ("grep", "-o", "[0-9]* requests: .*", str(folder / "all.txt"))
    yield Step("told", told, sums=True)


JOBS: Mapping[str, Job] = {
    "greens": Job(
        "six whole runs of scripts/test: three alone on the machine, three beside a busy core",
        greens,
    ),
    "made-batches": Job(
        "10,000 produce requests made by a seed, most of them wrong, to Highwater and to Apache "
        "Kafka: codes, refused records, and what is stored",
        made_batches,
    ),
    "pairs": Job(
        "68 fresh seeds of each of 120 pairs of the simulation's flags", _together(2, "1000..1067")
    ),
    "pairs-again": Job("30 other seeds of each of those pairs", _together(2, "120000..120029")),
    "triples": Job("4 seeds of each of 560 triples of those flags", _together(3, "200000..200003")),
    "new-flags": Job(
        "3,000 seeds of the flags for clients of Kafka 4, alone and with each of eight others",
        new_flags,
    ),
    "sim": Job("10,000 seeds", _seeds(10_000, "--pace", "0.3")),
    "sim-unclean": Job("10,000 seeds", _seeds(10_000, "--pace", "0.3", "--unclean")),
    "sim-joints": Job(
        "5,000 seeds with staged joints, transactions and groups",
        _seeds(5_000, "--pace", "0.3", "--joints", "--transactions", "--groups"),
    ),
    "sim-dirs": Job(
        "5,000 seeds with two log directories, disk errors and administrators",
        _seeds(5_000, "--pace", "0.2", "--log-dirs", "--disk-errors", "--admin"),
    ),
    "sim-groups": Job(
        "5,000 seeds with transactions and groups",
        _seeds(5_000, "--pace", "0.1", "--transactions", "--groups"),
    ),
    "sim-cold": Job(
        "600 seeds with transactions, groups and cold reads",
        _seeds(600, "--pace", "0.3", "--transactions", "--groups", "--cold-reads"),
    ),
    "mutants-sim": Job(
        "each broken broker of the simulation, until a seed finds it",
        _module(
            "tests.simulation.mutation",
            ("--seeds", "0..499", "--table", "docs/mutants-sim.md"),
            ("--seeds", "0..9", "1", "38"),
        ),
    ),
    "mutants-pin": Job(
        "each row of docs/mutants-sim.md again; where its seed finds nothing, the seeds around it",
        mutants_pin,
    ),
    "coverage": Job(
        "what 2,000 seeds reach, at this commit and before most workloads (docs/coverage.md)",
        coverage,
    ),
    "generated-mutants": Job(
        "300 mutants of those that are made by rule, each on the seeds that run its statement, 60 "
        "CPU seconds at most (docs/mutants-generated.md)",
        generated_mutants,
    ),
    "fresh-clone": Job(
        "`scripts/demo --seed 7` in a fresh clone, and when each part of it is over: with what "
        "the installers have in their caches, and without (the figures)",
        fresh_clone,
    ),
    "starts": Job(
        "100 starts and stops of the fixtures' cluster",
        _module("tests.long.starts", ("100",), ("10",)),
    ),
    "image-starts": Job(
        "50 starts of the image highwater/cluster",
        _module("tests.long.image_starts", ("50",), ("5",)),
    ),
    "languages": Job(
        "the five languages' examples against `highwater up` and the image",
        _module("tests.long.languages", (), ("python", "javascript")),
    ),
    "page-on-apache": Job(
        "the ten tests of docs/pytest.md on Apache Kafka 3.9",
        _page("apache"),
    ),
    "page-on-compose": Job("the same ten tests on containers", _page("compose")),
    "recorders": Job(
        "the recorders of Java, Go and JavaScript, each with a sound history and a planted loss",
        _module("tests.long.recorders", (), ("javascript",)),
    ),
    "floods": Job(
        "5,000 connections that open TLS and stop half-way, and 5,000 that authenticate wrongly, "
        "beside 100 requests a second",
        _module("tests.long.floods", ("5000",), ("200",)),
    ),
    "fuzz": Job(
        "1,000,000 fuzzed requests, a quarter of them with every right, what a well-behaved client "
        "notices of them, and 100,000 damaged logs",
        fuzz,
    ),
    "fuzz-surfaces": Job(
        "30,000 damages to znodes of clusters under load, 500,000 logins, 500,000 calls of the "
        "control API, and 50,000 connections each to the metrics, control and TLS ports",
        fuzz_surfaces,
    ),
    "zookeeper-answers": Job(
        "100,000 requests to the embedded ZooKeeper and to Java's, by sessions that are closed, "
        "leave, come back and expire: answers, Stats, zxids and watches",
        zookeeper(("answers", 100_000, 10, 2_000)),
    ),
    "zookeeper-kills": Job(
        "1,000 kills -9 of the embedded ZooKeeper under load, at moments of chance: what was "
        "answered is there, and so are the sessions",
        zookeeper(("kills", 1_000, 5, 20)),
    ),
    "zookeeper-damage": Job(
        "100,000 starts of the embedded ZooKeeper on damaged logs and snapshots: the last state, "
        "an earlier one where the logs end earlier, or a line that says what is damaged",
        zookeeper(("damage", 100_000, 5, 2_000)),
    ),
    "zookeeper-frames": Job(
        "500,000 fuzzed frames to the embedded ZooKeeper, whose journal gives the same state "
        "afterwards, and 5,000 connections with junk beside a client that is served",
        zookeeper(("frames", 500_000, 5, 10_000), ("sockets", 5_000, 1, 200)),
    ),
    "rest": Job(
        "the tests that are marked `rare`",
        _module("pytest", ("tests", "-m", "rare"), ("tests", "-m", "rare", "--collect-only")),
    ),
    "spark-scale": Job(
        "generated histories of up to 10,000,000 operations, verified by Spark", _scale(*SCALES)
    ),
    "spark-scale-100m": Job(
        "generated histories of 100,000,000 rows, even and skewed, verified by Spark",
        _scale(("50000000", "0"), ("50000000", "0.9")),
    ),
    "planted": Job(
        "5,000 random histories with random planted defects: each by DuckDB, and 100 at a time as "
        "topics of one folder by Spark",
        planted,
    ),
    "s3": Job(
        "`spark/verify.py` and `spark/generate.py` on a local S3 server, through Hadoop's s3a",
        _module("tests.long.s3", (), ("short",)),
    ),
    "targets": Job(
        "ten chaos runs of each target, with transactions, groups and a planted loss",
        _targets("targets", TARGETS),
    ),
    "targets-further": Job("the same of further releases", _targets("targets-further", FURTHER)),
    "known-bugs": Job(
        "four known bugs of Apache Kafka, provoked: five runs on a release that has each, and "
        "five on a later one; the late EndTxn also on Highwater and by Java (docs/targets.md)",
        known_bugs,
    ),
    "new-groups": Job(
        "ten chaos runs each of consumer groups, share groups and transactions of version 2, on "
        "Highwater and on Apache Kafka 4.2",
        groups_of_today,
    ),
    "streams": Job(
        "a Kafka Streams application under `chaos --app`, five seeds with exactly_once_v2 and "
        "five with at_least_once",
        streams,
    ),
    "zoo": Job(
        "the applications of `examples/app` under `chaos --app`, ten seeds each, in other "
        "languages and on Apache Kafka 4.2 three: wrong ones are invalid and name their mistake, "
        "right ones are valid",
        zoo,
    ),
    "watch": Job(
        "`spark/watch.py` at 5,000 records a second for 30 minutes, a broken promise every 30 s",
        _module("tests.long.watch", ("1800",), ("60", "5000", "5")),
    ),
    "watch-mutant": Job(
        "`highwater chaos --watch` on a broker that acknowledges too early",
        _module("tests.long.watch_mutant", (), ()),
    ),
    "soak": Job(
        "30 minutes at 70 % of what the writers of `highwater chaos` get through, a leader killed "
        "every two minutes: throughput, p99, memory and ISR over time",
        soak,
    ),
    "mutants": Job(
        "each broken broker of the harness, five runs",
        _module("tests.integration.mutants", ("--runs", "5"), ("--runs", "1", "10")),
    ),
}


def broken(log: Path) -> tuple[int, list[str]]:
    """How many seeds a simulation's log has, and those of them that broke a rule."""
    count, found = 0, []
    for line in log.read_text().splitlines():
        entry = json.loads(line)
        if "seed" not in entry:
            continue
        count += 1
        if entry.get("violation"):
            found.append(f"{log.stem} seed {entry['seed']}: {entry['violation']}")
    return count, found
