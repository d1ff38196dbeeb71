"""A load that lasts, with a broker killed every two minutes: does anything drift?

usage: python -m tests.long.soak FOLDER [SECONDS]

First a run of 30 s finds how many records a second the writers of `highwater chaos` get through;
then one at SHARE of that lasts for SECONDS (1800), and a leader is killed every two minutes and
started again after ten seconds.  The verdict must be valid.  Between the first fifth of the time
and the last, throughput may fall by a tenth, the memory of a broker grow by a fifth, and the p99 of
acknowledgements double at most.  FOLDER has the run, and `soak.html`: throughput, p99, memory and
ISR over time.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
import psutil

from highwater.bench.figures.curves import Series, page
from highwater.bench.figures.memory import pss_mib
from highwater.verdict import tables
from highwater.verdict.report.data import ReportData, gather

CHAOS = (sys.executable, "-m", "highwater.cli.main", "chaos", "--engine", "duckdb", "--seed", "1")
FULL, FIND_S = 100_000, 30
SHARE = 0.7
KILL_EVERY_S, DOWN_S = 120, 10
SAMPLE_S = 5.0
FALL, GROWTH, SLOWER = 0.9, 1.2, 2.0


@dataclass(slots=True)
class Memory:
    """PSS of each broker of a run in MiB, sampled until stopped."""

    folder: Path
    began: float = field(default_factory=time.time)
    samples: dict[str, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))
    stopped: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        while not self.stopped.wait(SAMPLE_S):
            for process in psutil.process_iter():
                try:
                    words = process.cmdline()
                    name = next((n for n in map(self._member, words) if n), None)
                    if name is not None:
                        mib = pss_mib(process.pid)
                        self.samples[name].append((time.time() - self.began, mib))
                except (psutil.Error, OSError):
                    continue

    def _member(self, word: str) -> str | None:
        """The broker whose properties a process was given."""
        path = Path(word)
        if path.suffix != ".properties" or self.folder not in path.parents:
            return None
        return next((part for part in path.parts if part.startswith("broker-")), None)


def chaos(folder: Path, *words: str) -> int:
    return subprocess.run([*CHAOS, "--out", str(folder), *words], check=False).returncode


def acknowledged(data: ReportData) -> list[float]:
    return [a + b for a, b in zip(data.rates.acked, data.rates.unsafe, strict=True)]


def most(folder: Path) -> float:
    """The records a second of one writer, where nothing holds it back."""
    calm = folder / "calm.json"
    calm.write_text("[]")
    run = folder / "most"
    chaos(run, "--duration", str(FIND_S), "--rate", str(FULL), "--faults", str(calm))
    rates = [rate for rate in acknowledged(gather(run)) if rate > 0]
    with duckdb.connect() as db:
        tables.register(db, run)
        found = db.execute(
            "SELECT count(DISTINCT process) FROM history WHERE f = 'send'"
        ).fetchone()
    assert found is not None
    writers = int(found[0])
    total = statistics.median(rates)
    print(f"without a limit, {writers} writers: {total:,.0f} records a second", flush=True)
    return total / writers


def schedule(seconds: int) -> list[dict[str, object]]:
    return [
        {"at": at, "name": "kill", "target": "leader of safe-0", "for": DOWN_S}
        for at in range(KILL_EVERY_S // 2, seconds - DOWN_S, KILL_EVERY_S)
    ]


def isr_over_time(data: ReportData) -> list[tuple[float, float]]:
    """The smallest ISR of any partition of topic safe, in each second."""
    spans = [spans for name, spans in data.isrs.items() if name.startswith("safe-")]
    found = []
    for second in range(int(data.final_read_at or data.seconds)):
        sizes = [len(s.state) for of in spans for s in of if s.begin <= second < s.end]
        if sizes:
            found.append((float(second), float(min(sizes))))
    return found


def drifts(
    rates: list[float], p99: list[float], memory: dict[str, list[tuple[float, float]]]
) -> list[str]:
    """What differs too much between the first fifth and the last."""
    found = []
    first, last = statistics.median(_fifth(rates, 0)), statistics.median(_fifth(rates, 4))
    if last < FALL * first:
        found.append(f"throughput fell from {first:,.0f} to {last:,.0f} records a second")
    first, last = statistics.median(_fifth(p99, 0)), statistics.median(_fifth(p99, 4))
    if last > SLOWER * first:
        found.append(f"the p99 rose from {first:.0f} to {last:.0f} ms")
    for broker, samples in sorted(memory.items()):
        sizes = [mib for _, mib in samples]
        first, last = max(_fifth(sizes, 0)), max(_fifth(sizes, 4))
        if last > GROWTH * first:
            found.append(f"{broker} grew from {first:.0f} to {last:.0f} MiB")
    return found


def _fifth(values: list[float], number: int) -> list[float]:
    size = max(1, len(values) // 5)
    return values[number * size : (number + 1) * size]


def soak(folder: Path, seconds: int) -> int:
    rate = SHARE * most(folder)
    faults, run = folder / "faults.json", folder / "run"
    faults.write_text(json.dumps(schedule(seconds)))
    memory = Memory(run.resolve())
    sampler = threading.Thread(target=memory.run)
    sampler.start()
    words = ("--duration", str(seconds), "--rate", f"{rate:.0f}", "--faults", str(faults))
    try:
        code = chaos(run, *words, "--json", str(folder / "verdict.json"))
    finally:
        memory.stopped.set()
        sampler.join()
    data = gather(run)
    width, end = data.rates.seconds, data.final_read_at or data.seconds
    bins = range(1, int(end / width))  # without the first and the last, which are not full
    rates = [acknowledged(data)[b] for b in bins]
    p99 = [data.rates.latency_ms[b] or 0.0 for b in bins]
    drift = drifts(rates, p99, memory.samples)
    shown = [
        Series(
            "acknowledged records a second", {"": list(zip(_at(bins, width), rates, strict=True))}
        ),
        Series("p99 of acknowledgements, ms", {"": list(zip(_at(bins, width), p99, strict=True))}),
        Series("memory of a broker, MiB PSS", dict(memory.samples)),
        Series("smallest ISR", {"": isr_over_time(data)}),
    ]
    kills = sum(fault.name == "kill" for fault in data.faults)
    sentence = (
        f"{seconds} s at {SHARE:.0%} of the most, {statistics.median(rates):,.0f} records a "
        f"second, {kills} kills: verdict {data.verdict['verdict']}; p99 of {width:.0f} s: median "
        f"{statistics.median(p99):.0f} ms, worst {max(p99):.0f} ms; a broker at most "
        f"{max(mib for of in memory.samples.values() for _, mib in of):.0f} MiB; "
        + ("; ".join(drift) or "nothing drifts")
    )
    (folder / "soak.html").write_text(page("A load that lasts", sentence, shown))
    print(sentence, flush=True)
    return 1 if code or drift or not kills else 0


def _at(bins: range, width: float) -> list[float]:
    return [b * width for b in bins]


if __name__ == "__main__":
    place = Path(sys.argv[1])
    place.mkdir(parents=True, exist_ok=True)
    sys.exit(soak(place, int(sys.argv[2]) if len(sys.argv) > 2 else 1800))
