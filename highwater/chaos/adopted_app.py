"""An application that somebody else starts, but that faults aim at like the copies of a run.

Each of its copies connects by doors of its own.  Its inputs are all records of the input topic,
whoever wrote them.  A copy's process becomes known only when it is struck, and whoever started it
must start it again.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path
from signal import Signals
from typing import Any, Final, cast

import trio

from highwater.chaos.aimed.app_stage import Aim, AppStage, OutputControl, Probe
from highwater.chaos.aimed.commits import CommitWatcher
from highwater.chaos.aimed.doors import Doors
from highwater.chaos.aimed.probes import aimed
from highwater.chaos.aimed.windows import Windows
from highwater.chaos.aimed.wire import CopyWire
from highwater.chaos.app_processes import AppCluster, Copy, name_of
from highwater.chaos.app_traffic import Watcher
from highwater.chaos.witnesses.deaths import DeathWitness
from highwater.child_processes import Pid
from highwater.cluster.faults.done import Done
from highwater.cluster.faults.fault_model import Fault
from highwater.cluster.faults.stage import Stage
from highwater.cluster.interface import Cluster, ClusterError
from highwater.verdict.contracts import contract_model as model
from highwater.verdict.contracts.fields import Source

KILL, PAUSE = "kill", "pause"
ENDS_S: Final = 10.0
"""The most time that a process may take to end after a signal."""


@dataclass(slots=True)
class _Process:
    """Stands for a process that is no child of this one, and shows its state."""

    pid: Pid

    @property
    def running(self) -> bool:
        return self.pid.alive()

    @property
    def paused(self) -> bool:
        return self.pid.stopped()


class _Adopted(Copy):
    """A copy whose process is the child of another process."""

    def adopt(self, pid: int) -> None:
        known = self.child.pid if self.child is not None else None
        now = Pid.of(pid)
        if not now.alive():
            raise ClusterError(f"no process {pid} runs")
        if now != known:
            # `started` stays as it is, because nobody says when the process was started: what it
            # did before this call counts, too
            self.child = cast(Any, _Process(now))

    def signal(self, number: Signals) -> None:
        if self.child is not None:
            self.child.pid.signal(number)

    async def end(self, number: Signals, within_s: float = ENDS_S) -> int | None:
        self.signal(number)
        with trio.move_on_after(within_s):
            while self.running:
                await trio.sleep(0.02)
            return -number
        return None


class AdoptedApp:
    """An application: its doors, its windows, and the strikes at its copies."""

    def __init__(
        self, cluster: Cluster, stage: Stage, ends: tuple[str, str], match: str, copies: int
    ) -> None:
        """`ends`: the topics that it reads and writes; `match`: where both have the id.

        Raises ValueError.
        """
        topic, output = ends
        source = _source(topic, output, match)
        count = {name: sum(tp.topic == name for tp in stage.zookeeper.replicas) for name in ends}
        names = [name_of(number) for number in range(1, copies + 1)]
        self._owners: dict[int, str] = {}
        self.windows = Windows(trio.current_time)
        self.aims = {name: self._aim(cluster, ends, name) for name in names}
        made = [_Adopted(name, "", {}, Path()) for name in names]
        self.apps = AppCluster(cluster, made, lambda line: None)
        self.stage = AppStage(
            cast(Cluster, self.apps), stage.zookeeper, random.Random(),
            deaths=DeathWitness(cluster.data_dirs), workload=OutputControl(self.aims), topics=[],
            apps=self.apps, windows=self.windows, output=output, aims=self.aims,
            owners=self._owners,
        )  # fmt: skip
        where, windows = cluster.direct_bootstrap, self.windows
        self._watchers = (
            Watcher(where, topic, count[topic], source, tell=windows.sent),
            Watcher(
                where, output, count[output], source, tell=windows.shown, passed=windows.passed
            ),
            Watcher(where, output, count[output], source, "read_uncommitted", windows.stored),
            CommitWatcher(where, topic, windows),
        )  # fmt: skip
        self._scope = trio.CancelScope()
        self._striking = trio.Lock()

    def _aim(self, cluster: Cluster, ends: tuple[str, str], name: str) -> Aim:
        def owns(partition: int) -> None:
            self._owners[partition] = name

        wire = CopyWire(*ends, owns)
        return Aim(wire, Doors(cluster, wire))

    @property
    def bootstrap(self) -> list[str]:
        """The bootstrap servers of each copy."""
        return [aim.doors.bootstrap for aim in self.aims.values()]

    async def serve(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serves the doors and watches the topics until `close`."""
        with self._scope:
            async with trio.open_nursery() as nursery:
                for aim in self.aims.values():
                    await aim.doors.serve(nursery)
                for watcher in self._watchers:
                    nursery.start_soon(watcher.watch)
                nursery.start_soon(self.stage.keep_leaving)
                task_status.started()

    def close(self) -> None:
        self._scope.cancel()

    async def strike(self, copy: int, pid: int, how: str, when: str, lasts_s: float) -> Probe:
        """Kills this process in the window, or pauses it there for `lasts_s` and resumes it.

        Raises ClusterError where there is no such copy or process.
        """
        names = list(self.aims)
        if not 1 <= copy <= len(names):
            raise ClusterError(f"there is no copy {copy}: the application has {len(names)}")
        name = names[copy - 1]
        async with self._striking:
            adopted = self.apps.copies[name]
            assert isinstance(adopted, _Adopted)
            adopted.adopt(pid)
            fault = Fault(how, name, params={"when": when})
            done = await _EFFECTS[how](self.stage, fault)
            if done.undo is not None:
                await trio.sleep(lasts_s)
                await done.undo()
            return self.stage.probes[-1]


async def _kill(stage: AppStage, fault: Fault) -> Done:
    name = stage.target(fault)
    await stage.apps.kill(name)
    return Done(name, "ended by SIGKILL")


async def _pause(stage: AppStage, fault: Fault) -> Done:
    name = stage.target(fault)
    await stage.apps.pause(name)

    async def undo() -> str | None:
        await stage.apps.resume(name)
        return "runs again"

    return Done(name, "stands still", "resume", undo)


_EFFECTS: Final = {KILL: aimed(_kill), PAUSE: aimed(_pause)}


def _source(topic: str, output: str, match: str) -> Source:
    """The place of the id in a topic's records; raises ValueError."""
    fields = {"id": {"json": match}}
    pipeline = {"from": topic, "to": output, "within_s": 1, "must": ["at least once"]}
    contract = {"topics": {topic: fields, output: fields}, "pipelines": [pipeline]}
    text = json.dumps(contract)
    try:
        return model.load("match", lambda file: text).topics[output].sources["id"]
    except model.ContractError as error:
        raise ValueError(f"match {match!r}: {error}") from None
