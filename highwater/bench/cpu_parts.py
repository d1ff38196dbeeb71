"""`highwater bench cpu`: the brokers' CPU time for one batch, by part.

Theory of operation.  The brokers take a load twice.  The first time they run alone, which gives
their CPU time, in the kernel and outside, and the number of batches.  The second time py-spy, a
sampling profiler in another process, watches each broker; only the shares are taken from it.  A
sample is the stack of the thread that holds the interpreter's lock, and counts for the part of the
innermost function that belongs to one (`PARTS`).  So the interpreter's and the libraries' time
counts for the function that called them; time in nothing that ours called is the event loop's.  A
thread in a system call has released the lock: the kernel's time, for sockets, files and wake-ups,
is a line of its own.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import DEVNULL

import trio

from highwater.base.install_hint import install_hint
from highwater.bench.benchmark import option
from highwater.bench.everything.rate_rows import KIB
from highwater.bench.everything.turns import broker_pids
from highwater.bench.figures.cpu import cpu_seconds, system_seconds
from highwater.bench.figures.rows import piped
from highwater.bench.figures.sides import BenchFailed, Sides
from highwater.bench.load import Load
from highwater.bench.loads import reads, single_writes
from highwater.bench.loads.bench_topics import create_topic, delete_topic, until_gone
from highwater.bench.loads.load_process import output
from highwater.cluster.processes.process_cluster import ProcessCluster

SAMPLES_A_SECOND = 250
RECORD_BYTES, READ_MB, PARTITIONS = 1000, 300, 3
OTHER, LOOP = "the rest", "event loop"
PARTS: tuple[tuple[str, str], ...] = (
    (
        "receive and send",
        r"broker/network/(processor|connection|request_channel|poller)|world/real/network",
    ),
    ("parse", r"kafka/wire/|_vendor/kafka/|kafka/protocol/"),
    ("check", r"broker/(log/(validation|producer|verification)|quota/|settings/)|kafka/security/"),
    ("write", r"broker/log/|world/real/disk"),
    ("replicate", r"broker/(replica/|handlers/(fetch|offset_for)|membership/)|kafka/client/"),
    ("queue and wait", r"broker/(request/|network/)|base/(waker|buffers)"),
    ("handle", r"broker/(handlers/|coordinator/|metadata/|context|services)"),
    ("measure", r"broker/measure/|base/(metrics|loop_steps|event_loop)"),
    (LOOP, r"/trio/"),
)
"""(part, pattern of the files whose functions belong to it); the first match counts."""
_PATTERNS = [(part, re.compile(files)) for part, files in PARTS]
_LEADING = re.compile(r".*?/(?=(?:highwater/)?(?:broker|controller)/|highwater/|trio/)")


@dataclass(frozen=True, slots=True)
class Kind:
    """A load: its size, and whether it is one record at a time."""

    what: str
    batch_kib: int = 0
    settings: dict[str, object] = field(default_factory=dict)
    single: bool = False
    reads: bool = False
    """Whether the load reads, again and again, what was written in such batches."""


LOADS = {
    "one": Kind("one record in flight", single=True),
    "16k": Kind("16 KiB batches", 16),
    "128k": Kind("128 KiB batches", 128),
    "1m": Kind("1 MiB batches", 1024),
    "idempotent": Kind("idempotent, 128 KiB", 128, {"enable.idempotence": True}),
    "read": Kind("read 128 KiB batches", 128, reads=True),
}


@dataclass(frozen=True, slots=True)
class Options:
    loads: tuple[str, ...] = option(tuple(LOADS), flag="--load", of=tuple(LOADS))
    seconds: float = option(8.0, "Of each load.", least=1)
    brokers: int = option(3, "With RF 3, or as many as there are.", least=1, most=9)

    @property
    def writes(self) -> int:
        return int(self.seconds * 500)

    @property
    def replicas(self) -> int:
        return min(3, self.brokers)

    def section(self, _against: str | None) -> tuple[str, str]:
        """The name of the section of a page, which has no heading."""
        return f"bench cpu --brokers {self.brokers}" if self.brokers != 3 else "bench cpu", ""


@dataclass(slots=True)
class Parts:
    """The result of one load: the brokers' CPU microseconds for a batch, and samples by part."""

    what: str
    batch_us: float
    system_us: float
    """The share of these microseconds that was spent in the kernel."""
    mb_ms: float
    """CPU milliseconds for a megabyte of records."""
    samples: Counter[str]
    hottest: list[tuple[str, float]]
    """The functions with the most samples of their own, and their share."""

    def part_us(self, part: str) -> float:
        outside = self.batch_us - self.system_us
        return outside * self.samples[part] / max(1, self.samples.total())

    def share(self, us: float) -> str:
        return f"{us:.0f} ({us / self.batch_us:.0%})"

    def as_json(self) -> dict[str, object]:
        return {
            "what": self.what,
            "batch_us": round(self.batch_us, 1),
            "system_us": round(self.system_us, 1),
            "mb_ms": round(self.mb_ms, 2),
            "samples": dict(self.samples),
            "hottest": [[name, round(share, 4)] for name, share in self.hottest],
        }


def part_of(frames: Sequence[str]) -> str:
    """The part of a stack, outermost frame first; a frame is "FUNCTION (FILE:LINE)".

    >>> part_of(["run (/x/trio/_core/_run.py:1)", "append (/y/broker/log/log.py:7)"])
    'write'
    >>> part_of(["run (/x/trio/_core/_run.py:1)"]), part_of(["f (/z/other.py:1)"])
    ('event loop', 'the rest')
    """
    for frame in reversed(frames):
        for part, pattern in _PATTERNS:
            if pattern.search(frame):
                return part
    return OTHER


def read_stacks(text: str) -> tuple[Counter[str], Counter[str]]:
    """py-spy's raw output, "FRAME;FRAME;... COUNT" a line: samples by part, and by the innermost
    function."""
    parts: Counter[str] = Counter()
    innermost: Counter[str] = Counter()
    for line in text.splitlines():
        stack, _, count = line.rpartition(" ")
        frames = [f for f in stack.split(";") if " (" in f]
        if frames and count.isdigit():
            parts[part_of(frames)] += int(count)
            name, _, place = frames[-1].partition(" (")
            file = _LEADING.sub("", place.rpartition(":")[0])
            innermost[f"{file}: {name}"] += int(count)
    return parts, innermost


def profiler() -> str:
    """py-spy's program; raises BenchFailed with the remedy."""
    beside = Path(sys.executable).with_name("py-spy")
    found = str(beside) if beside.exists() else shutil.which("py-spy")
    if found is None:
        raise BenchFailed(f"py-spy is not installed: {install_hint('profile')}")
    return found


Work = Callable[[], Awaitable[tuple[float, float]]]
"""Carries a load out; returns the number of batches, and the megabytes of records."""


async def run(options: Options, sides: Sides) -> Profile:
    spy, found = profiler(), []
    async with sides.ours.cluster(options.brokers) as cluster:
        for name in options.loads:
            kind = LOADS[name]
            sides.progress(f"{kind.what}: alone")
            pids = broker_pids(cluster)
            async with _work(options, kind, cluster) as work:
                await work()  # its first connections and segments are made here
            async with _work(options, kind, cluster) as work:
                before, system_before = cpu_seconds(pids), system_seconds(pids)
                batches, megabytes = await work()
                used, in_system = cpu_seconds(pids) - before, system_seconds(pids) - system_before
            sides.progress(f"{kind.what}: with the profiler")
            async with _work(options, kind, cluster) as work:
                parts, innermost = await _profiled(spy, work, cluster)
            total = max(1, innermost.total())
            hottest = [(name, count / total) for name, count in innermost.most_common(12)]
            each = (used / batches * 1e6, in_system / batches * 1e6, used / megabytes * 1e3)
            found.append(Parts(kind.what, *each, parts, hottest))
    return Profile(found, options.brokers)


@asynccontextmanager
async def _work(options: Options, kind: Kind, cluster: ProcessCluster) -> AsyncIterator[Work]:
    """The load, on a topic of its own, which has records if the load reads."""
    where, topic = cluster.direct_bootstrap, f"cpu-{kind.what.replace(' ', '-').replace(',', '')}"
    config = {
        "min.insync.replicas": str(min(2, options.replicas)),
        "file.delete.delay.ms": "1000",
    }
    how = (where, topic, PARTITIONS, options.replicas, config)
    size = kind.batch_kib * KIB

    async def single() -> tuple[float, float]:
        await output(single_writes.command("write", where, topic, options.writes))
        writes = options.writes + min(options.writes, single_writes.UNTIMED)
        return writes, writes * single_writes.RECORD_BYTES / 1e6

    async def write(megabytes: float = math.inf) -> tuple[float, float]:
        load = Load(
            where, topic, RECORD_BYTES, size, "all", 0, options.seconds, megabytes,
            dict(kind.settings),
        )  # fmt: skip
        records = json.loads(await output(load.command()))["records"]
        return records * RECORD_BYTES / size, records * RECORD_BYTES / 1e6

    async def read() -> tuple[float, float]:
        megabytes, began = 0.0, trio.current_time()
        while megabytes == 0 or trio.current_time() < began + options.seconds:
            await output(reads.command(where, topic, int(there * 1e6 / RECORD_BYTES)))
            megabytes += there
        return megabytes * 1e6 / size, megabytes

    await create_topic(*how)
    try:
        there = (await write(READ_MB))[1] if kind.reads else 0.0
        yield read if kind.reads else single if kind.single else write
    finally:
        await delete_topic(where, topic)
        await until_gone(cluster.folder, topic)


async def _profiled(
    spy: str, work: Work, cluster: ProcessCluster
) -> tuple[Counter[str], Counter[str]]:
    files = [cluster.folder / f"stacks-{number}" for number in cluster.brokers]
    async with trio.open_nursery() as nursery:
        spies = []
        for pid, file in zip(broker_pids(cluster), files, strict=True):
            words = [spy, "record", "--pid", str(pid), "--gil", "--format", "raw"]
            words += ["--full-filenames", "--rate", str(SAMPLES_A_SECOND), "--duration", "600"]
            words += ["--output", str(file)]
            spies.append(await trio.lowlevel.open_process(words, stdout=DEVNULL, stderr=DEVNULL))
        await work()
        for one in spies:
            one.send_signal(2)
            nursery.start_soon(one.wait)
    texts = [file.read_text() if file.exists() else "" for file in files]
    if not all(texts):
        raise BenchFailed(
            "py-spy gave no samples: it has to be allowed to look at other processes (root, or "
            "kernel.yama.ptrace_scope=0)"
        )
    parts: Counter[str] = Counter()
    innermost: Counter[str] = Counter()
    for text in texts:
        for into, more in zip((parts, innermost), read_stacks(text), strict=True):
            into.update(more)
    return parts, innermost


@dataclass(frozen=True, slots=True)
class Profile:
    """Each load by its parts."""

    loads: Sequence[Parts]
    brokers: int = 3

    def markdown(self) -> str:
        """Parts by load, microseconds of CPU a batch and the share of all."""
        whose = f"{self.brokers} brokers" if self.brokers > 1 else "the broker"
        lines = [(f"CPU of {whose}, µs a batch", *(one.what for one in self.loads))]
        seen = {part for one in self.loads for part in one.samples}
        lines += [
            (part, *(one.share(one.part_us(part)) for one in self.loads))
            for part in [*(part for part, _ in PARTS), OTHER]
            if part in seen
        ]
        lines.append(("the kernel", *(one.share(one.system_us) for one in self.loads)))
        lines.append(("**all**", *(f"{one.batch_us:.0f}" for one in self.loads)))
        lines.append(("ms a MB", *(f"{one.mb_ms:.2f}" for one in self.loads)))
        return piped(lines)

    def text(self) -> str:
        """The table, and of each load the functions with the most samples of their own."""
        lines = [self.markdown()]
        for one in self.loads:
            lines += ["", one.what, *(f"  {share:6.1%}  {name}" for name, share in one.hottest)]
        return "\n".join(lines)

    def as_json(self) -> dict[str, object]:
        return {"loads": [one.as_json() for one in self.loads]}
