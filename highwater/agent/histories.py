"""Histories beside a caller's test: clients that write down all they see, and checks of it.

A history is a folder with one workload process (`history_worker`).  Its clients come and go; a
check reads a topic from start to end, copies the brokers' segments, adds what the application
claims (values acknowledged or processed), and runs the project's own checks on all of it in DuckDB.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import trio

from highwater.agent.errors import ControlError
from highwater.chaos.witnesses import disk_reader as disk
from highwater.chaos.workloads.kinds import KINDS
from highwater.chaos.workloads.recorder import CommonSpec
from highwater.chaos.workloads.workload_process import Workload, WorkloadDied
from highwater.client_calls import ClientHangs
from highwater.cluster.interface import PATIENCE_S, Cluster
from highwater.verdict import duck, tables
from highwater.verdict.application import (
    APPLICATION,
    SHOWN,
    OutOfTurn,
    as_processed,
    longest_waits,
    out_of_turn,
    with_application,
)
from highwater.verdict.conclusion import conclude
from highwater.verdict.headline import story
from highwater.verdict.history import encode_line, read_lines
from highwater.verdict.results import Finding, Results

MOST: Final = 20
"""The most open histories, and the most clients of one."""
MOST_VALUES: Final = 1_000_000
"""The most values that an application may claim for one topic."""
MOST_PER_S: Final = 100_000.0
END_S: Final = 60.0
Faults = Callable[[], Sequence[dict[str, Any]]]
"""The faults so far, as lines of faults.jsonl."""


@dataclass(slots=True)
class Claims:
    acknowledged: list[str] = field(default_factory=list)
    processed: list[str] = field(default_factory=list)


@dataclass(slots=True)
class History:
    folder: Path
    spec: CommonSpec
    workload: Workload
    first_fault: int
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    clients: dict[str, str] = field(default_factory=dict)
    """Client -> topic."""
    claims: dict[str, Claims] = field(default_factory=dict)
    count: int = 0
    one_at_a_time: trio.Lock = field(default_factory=trio.Lock)

    async def order(self, do: str, answer: str, within_s: float, **fields: Any) -> dict[str, Any]:
        """Gives the workload an order; returns its answer."""
        try:
            async with self.one_at_a_time:
                await self.workload.order(do, **fields)
                return await self.workload.wait_for(answer, within_s)
        except (WorkloadDied, ClientHangs) as error:
            raise ControlError("failed", f"{error} ({self.folder}/workload.log)") from error


class Histories:
    def __init__(
        self, cluster: Cluster, folder: Path, nursery: trio.Nursery, faults: Faults
    ) -> None:
        self._cluster = cluster
        self._folder = folder
        self._nursery = nursery
        self._faults = faults
        self._open: dict[int, History] = {}
        self._count = 0

    async def open(self, seed: int) -> dict[str, Any]:
        if len(self._open) >= MOST:
            raise ControlError("refused", f"{MOST} histories are open: close one")
        self._count += 1
        while (folder := self._folder / f"history-{self._count}").exists():
            self._count += 1  # an earlier agent in this folder has used that number
        folder.mkdir(parents=True)
        spec = CommonSpec(
            run=f"h{self._count}",
            seed=seed,
            bootstrap=self._cluster.inner_bootstrap,
            history=str(folder / "history.jsonl"),
        )
        workload = Workload(spec, folder, program="history_worker")
        made = History(folder, spec, workload, len(self._faults()))
        self._nursery.start_soon(_run, made)
        try:
            await workload.wait_for("started", PATIENCE_S)
        except (WorkloadDied, ClientHangs) as error:
            raise ControlError("failed", f"no workload for a history: {error}") from error
        self._open[self._count] = made
        return {"history": self._count, "folder": str(folder)}

    def _get(self, number: int) -> History:
        if number not in self._open:
            known = ", ".join(map(str, self._open)) or "none"
            raise ControlError("not_found", f"no history {number}; open: {known}")
        return self._open[number]

    async def add(self, number: int, topic: dict[str, Any], body: dict[str, Any]) -> dict[str, Any]:
        """`topic`: {"name", "partitions"}; `body`: does, client, rate, acks."""
        history = self._get(number)
        does, kind = body["does"], body.get("client", "confluent-kafka")
        rate, acks = float(body.get("rate", 100.0)), body.get("acks", -1)
        wrong = ""
        if does not in ("produce", "consume"):
            wrong = f"does {does!r}: a client does produce or consume"
        elif kind not in KINDS:
            wrong = f"no client {kind!r}; there are {', '.join(KINDS)}"
        elif not (math.isfinite(rate) and 0 <= rate <= MOST_PER_S):
            wrong = f"rate {rate}: records a second, at most {MOST_PER_S:g}"
        elif acks not in (-1, 1) or (acks == 1 and kind != "confluent-kafka"):
            wrong = f"acks {acks}: -1 (all), or 1 with the client confluent-kafka"
        elif len(history.clients) >= MOST:
            wrong = f"{MOST} clients are at work: end one"
        if wrong:
            raise ControlError("bad_request", wrong)
        history.count += 1
        name = f"{'producer' if does == 'produce' else 'consumer'}-{history.count}"
        order = {"does": does, "name": name, "kind": kind, "topic": topic}
        await history.order("add", "added", PATIENCE_S, **order, rate=rate, acks=acks)
        history.clients[name] = topic["name"]
        return {"name": name}

    async def end(self, number: int, name: str) -> dict[str, Any]:
        """Ends a client; a producer waits for its last acknowledgements."""
        history = self._get(number)
        if history.clients.pop(name, None) is None:
            known = ", ".join(history.clients) or "none"
            raise ControlError("not_found", f"no client {name!r} at work; there are: {known}")
        ended = await history.order("end", "ended", END_S, name=name)
        if ended["late"]:
            raise ControlError("failed", f"{name} did not stop: it is in {ended['late']}")
        if ended["failed"]:
            raise ControlError("failed", f"{name} was ended by {ended['failed']}")
        return {}

    def claim(self, number: int, topic: str, does: str, values: list[str]) -> dict[str, Any]:
        """Notes an application's claim: values for which it got an acknowledgement (`acknowledged`)
        or which it has `processed`."""
        claims = self._get(number).claims.setdefault(topic, Claims())
        if does not in ("acknowledged", "processed"):
            raise ControlError("bad_request", f"{does!r} is neither acknowledged nor processed")
        known: list[str] = getattr(claims, does)
        if len(known) + len(values) > MOST_VALUES:
            raise ControlError("bad_request", f"more than {MOST_VALUES} values of {topic}")
        known += values
        return {}

    async def gaps(self, number: int, topic: str) -> dict[str, Any]:
        """The longest time in which a producer waited for an acknowledgement, by partition."""
        history = self._get(number)
        await history.order("flush", "flushed", PATIENCE_S)
        lines, now_ns = read_lines(Path(history.spec.history)), time.monotonic_ns()
        at_work = list(history.clients)
        found = await trio.to_thread.run_sync(longest_waits, lines, topic, at_work, now_ns)
        acknowledged = sum(wait.acknowledged for wait in found)
        if not acknowledged:
            raise ControlError("refused", f"nothing was acknowledged on {topic} in this history")
        worst = max(found, key=lambda wait: wait.longest_s)
        partitions = [asdict(wait) for wait in found]
        return {**asdict(worst), "acknowledged": acknowledged, "partitions": partitions}

    async def check(
        self, number: int, topic: dict[str, Any], body: dict[str, Any]
    ) -> dict[str, Any]:
        """`body`: processed, exactly_once (flags), within (seconds)."""
        history = self._get(number)
        name = topic["name"]
        if busy := [client for client, on in history.clients.items() if on == name]:
            raise ControlError("refused", f"{', '.join(busy)} is at work on {name}: end it first")
        within_s = float(body.get("within", 60.0))
        told = await history.order(
            "final", "final", 2 * within_s + END_S, topics=[topic], timeout_s=within_s
        )
        if told["problems"]:
            raise ControlError("timeout", f"no full read of {name}: {'; '.join(told['problems'])}")
        claims = history.claims.pop(name, Claims())
        folder = history.folder / f"{name}-{history.count}"
        history.count += 1
        faults = self._faults()[history.first_fault :]
        data = {n: self._cluster.data_dirs(n) for n in self._cluster.brokers}
        job = _Job(history.spec, name, folder, faults, data, claims)
        with_processed = bool(body.get("processed"))
        exactly_once = bool(body.get("exactly_once"))
        return await trio.to_thread.run_sync(job.run, with_processed, exactly_once)

    async def close(self, number: int) -> dict[str, Any]:
        history = self._get(number)
        del self._open[number]
        history.scope.cancel()
        await history.workload.close()
        return {}

    async def close_all(self) -> None:
        for number in list(self._open):
            await self.close(number)


async def _run(history: History) -> None:
    with history.scope:
        try:
            await history.workload.run()
        except (trio.ClosedResourceError, trio.BrokenResourceError):
            pass


@dataclass(frozen=True, slots=True)
class _Job:
    """One check; in a thread, because DuckDB computes."""

    spec: CommonSpec
    topic: str
    folder: Path
    faults: Sequence[dict[str, Any]]
    data: dict[int, list[Path]]
    claims: Claims

    def run(self, processed: bool, exactly_once: bool) -> dict[str, Any]:
        lines = with_application(
            read_lines(Path(self.spec.history)), self.spec.run, self.topic, self.claims.acknowledged
        )
        results = self._results(self.folder, lines)
        info = json.loads((self.folder / "run.json").read_text())
        verdict = conclude(results, info, self.faults, torn_read=False)
        verdict.write(self.folder / "verdict.json")
        if not results["checks"]["C4"]["examined"]:
            raise ControlError(
                "refused", f"nothing was acknowledged on {self.topic}: a check proves nothing"
            )
        violated = [id_ for id_, check in verdict.checks.items() if check.status == "violated"]
        told = [_of_the_application(story(found)) for found in _violations(results, violated)]
        missed: Finding | None = None
        turns: list[OutOfTurn] = []
        if processed and not told:
            seen = as_processed(lines, self.topic, self.claims.processed)
            by_it = self._results(self.folder / "application", seen)
            found = _violations(by_it, ["C4"])
            told = [self._of_what_was_processed(finding) for finding in found]
            if found:
                missed = found[0]
                told[0] += _of_how_many(by_it)
            if exactly_once:
                turns = out_of_turn(lines, self.topic, self.claims.processed)
                told += [turn.story for turn in turns]
        elif violated[:1] == ["C4"]:
            told[0] += _of_how_many(results)
        return {
            "story": told[0] if told else "",
            "further": told[1:5],
            "missed": None if missed is None else _place(missed["partition"], missed["offset"]),
            "repeated": None
            if missed is not None or not turns
            else _place(turns[0].partition, turns[0].offset),
            "acknowledged": results["facts"]["acked"],
            "read": results["facts"]["polled"],
            "checks": sum(check.status == "passed" for check in verdict.checks.values()),
            "folder": str(self.folder),
        }

    def _of_what_was_processed(self, finding: Finding) -> str:
        told, value = story(finding), finding["value"]
        if not told.endswith(NOT_READ):
            return f"what {APPLICATION} processed: {told}"
        subject, _, acknowledged = told.removesuffix(NOT_READ).partition(" was ")
        if finding["offset"] is not None and not str(value).startswith(f"{self.spec.run}|"):
            subject += f" ({str(value)[:SHOWN]})"
        return f"{APPLICATION} did not process {subject}, which was {acknowledged}"

    def _results(self, folder: Path, lines: Sequence[dict[str, Any]]) -> Results:
        (folder / "cluster").mkdir(parents=True)
        (folder / "history.jsonl").write_bytes(b"".join(map(encode_line, lines)))
        (folder / "faults.jsonl").write_bytes(b"".join(map(encode_line, self.faults)))
        disk.copy_records(self.data, {self.topic}, folder / "cluster")
        info = {
            **asdict(self.spec),
            "topics": [{"name": self.topic}],
            "planned_faults": 0,
            "loss_arranged": False,
            "healed": True,
            "final_read": True,
            "finished": True,
        }
        (folder / "run.json").write_text(json.dumps(info, indent=1) + "\n")
        tables.build(folder)
        return duck.run_checks(folder)


NOT_READ: Final = " and is in no read"
"""The end of the sentence in which C4 reports a lost record."""


def _of_the_application(told: str) -> str:
    return told.replace(f"to {APPLICATION}{NOT_READ}", f"to {APPLICATION} and is not in the topic")


def _place(partition: int | None, offset: int | None) -> dict[str, int] | None:
    if partition is None or offset is None:
        return None
    return {"partition": partition, "offset": offset}


def _of_how_many(results: Results) -> str:
    c4 = results["checks"]["C4"]
    return f" ({c4['found']['violation']} of {c4['examined']} acknowledged records)"


def _violations(results: Results, ids: Sequence[str]) -> list[Finding]:
    return [
        finding
        for id_ in ids
        for finding in results["checks"].get(id_, {"examples": []})["examples"]
        if finding["kind"] == "violation"
    ]
