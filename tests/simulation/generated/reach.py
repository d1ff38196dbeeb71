"""Which seeds run which statements.

Each of a fixed list of runs (a seed with options of `highwater sim`) is run once, with a mark
before every statement of the files that mutants are made of.  A mutant is then run on the seeds
that run its statement: of each kind of options the cheapest first, since a fault that one kind of
client cannot see another one may.  A statement that no run has is "not reached", and no seed can
find a mutant there.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from highwater.simulation.part_list import SWITCHES
from tests.simulation.generated.maker import ROOT, Made, files

Run = dict[str, Any]
FURTHER = 1000
"""The first of the seeds that follow those of the map."""

_TOGETHER = (
    ("transactions", "groups", "retained", "admin"),
    ("compacted", "trimmed", "transactions"),
    ("disk_errors", "power_loss", "compacted", "retained"),
    ("groups", "admin", "unclean", "cold_reads"),
    ("transactions", "stalls", "groups", "flush"),
)


def runs(few: bool = False) -> list[Run]:
    """The runs of the map; `few` of them are enough for a slice."""
    plain = [_run(seed, 0.3) for seed in range(2 if few else 8)]
    alone = [_run(seed, 0.2, name) for name in SWITCHES for seed in range(3)]
    together = [_run(seed, 0.1, *names) for names in _TOGETHER for seed in range(10, 14)]
    return plain if few else plain + alone + together


def _run(seed: int, pace: float, *names: str) -> Run:
    return {"seed": seed, "options": {"pace": pace, **dict.fromkeys(names, True)}}


def hash_of(file: str) -> str:
    return hashlib.sha256((ROOT / file).read_bytes()).hexdigest()[:12]


@dataclass(frozen=True)
class Reach:
    """The map, as it is kept."""

    sources: dict[str, str]
    runs: list[Run]
    """With their cost in CPU seconds."""
    lines: dict[str, dict[int, list[int]]]
    """By file and line, the numbers of the runs."""

    def covering(self, made: Made) -> list[Run]:
        """The runs of its statement, the cheapest of each kind of options first."""
        kinds: dict[str, list[Run]] = defaultdict(list)
        for number in self.lines.get(made.file, {}).get(made.statement, ()):
            run = self.runs[number]
            kinds[json.dumps(run["options"])].append(run)
        rows = [sorted(of_a_kind, key=_cost) for of_a_kind in kinds.values()]
        rows.sort(key=lambda row: _cost(row[0]))
        longest = max(map(len, rows), default=0)
        return [row[turn] for turn in range(longest) for row in rows if turn < len(row)]

    def further(self, made: Made, count: int) -> list[Run]:
        """More seeds with the same options, in turns."""
        options = list({json.dumps(r["options"]): r for r in self.covering(made)}.values())
        numbers = range(count if options else 0)
        return [{**options[n % len(options)], "seed": FURTHER + n} for n in numbers]

    def stale(self) -> list[str]:
        """The files that have changed since the map was made."""
        return [file for file in files() if self.sources.get(file) != hash_of(file)]

    def write(self, path: Path) -> None:
        kept = {"sources": self.sources, "runs": self.runs, "lines": self.lines}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(json.dumps(kept).encode(), mtime=0))

    @classmethod
    def read(cls, path: Path) -> Reach:
        kept = json.loads(gzip.decompress(path.read_bytes()))
        lines = {
            file: {int(line): numbers for line, numbers in of.items()}
            for file, of in kept["lines"].items()
        }
        return cls(kept["sources"], kept["runs"], lines)


def _cost(run: Run) -> float:
    return float(run["cost"])


def measure(wanted: list[Run], tell: Callable[[str], None]) -> Reach:
    """Makes the map anew."""
    marked = files()
    sources = {file: hash_of(file) for file in marked}
    lines: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    measured: list[Run] = []
    request = {"sources": {}, "marked": marked, "cpu": 0, "runs": wanted}
    for told in _trial(request):
        if "end" not in told:
            continue
        run = wanted[told["end"]]
        if "rule" in told or "error" in told:
            raise RuntimeError(f"{run}: {told.get('what') or told.get('error')}")
        for file, numbers in told["lines"].items():
            for line in numbers:
                lines[file][line].append(len(measured))
        measured.append({**run, "cost": told["cpu"]})
        tell(f"{len(measured)} of {len(wanted)}: {run}, {told['cpu']} s")
    return Reach(sources, measured, {file: dict(of) for file, of in lines.items()})


def _trial(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    command = [sys.executable, "-O", "-m", "tests.simulation.generated.trial"]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        json.dump(request, process.stdin)
        process.stdin.close()
        for line in process.stdout:
            yield json.loads(line)
    if process.returncode:
        raise RuntimeError(f"the runs ended with exit code {process.returncode}")
