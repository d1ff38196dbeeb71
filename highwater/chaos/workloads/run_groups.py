"""Consumer groups in a chaos run: members come, leave and crash while the faults go on (G2-G4, G6).

One group of each kind of client reads the safe topic.  The members write files of their own,
because they are killed; their lines are added to the run's history at the end.
"""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import trio

from highwater.chaos.workloads.group_run import JAVA, GroupRun
from highwater.child_processes import Pid
from highwater.client_calls import ClientHangs
from highwater.cluster.client_files import Way

CLASSIC = (("kafka-python", "classic"), ("confluent-kafka", "classic"))
CONSUMER = (("confluent-kafka", "consumer"), (JAVA, "consumer"))
"""The clients of groups, and the protocols that they speak; `consumer` is KIP-848's."""
AT_FIRST, AT_MOST = 2, 3
EVERY_S = 3.0
OPERATIONS_FROM = 1 << 40
"""The first operation number of members: above those of all other clients of the run."""


class RunGroups:
    """The members of all groups; `kinds`: a group's client and protocol."""

    def __init__(
        self,
        folder: Path,
        way: Way,
        run: str,
        seed: int,
        topic: str,
        kinds: Sequence[tuple[str, str]],
    ) -> None:
        self._random = random.Random(f"{seed} groups")
        self._lock = threading.Lock()
        self._stopped = False
        self.common = {"run": run, "seed": seed, "phase": "run", "expect_loss": False}
        self.groups: list[GroupRun] = []
        for client, protocol in kinds:
            name = client if protocol == "classic" else f"{protocol}-{client}"
            self.groups.append(
                GroupRun(
                    folder / f"group-{name}", way, f"{run}-{name}", topic, client,
                    protocol=protocol,
                )
            )  # fmt: skip

    async def run(self) -> None:
        """Runs the groups until cancelled."""
        for group in self.groups:
            for _ in range(AT_FIRST):
                await trio.to_thread.run_sync(group.join)
        while True:
            await trio.sleep(EVERY_S)
            await trio.to_thread.run_sync(self._step, self._random.choice(self.groups))

    def _step(self, group: GroupRun) -> None:
        with self._lock:
            members = sorted(group.members)
            if self._stopped:
                return
            if len(members) < AT_FIRST or (len(members) < AT_MOST and self._random.random() < 0.5):
                group.join()
            elif self._random.random() < 0.5:
                group.crash(self._random.choice(members))
            else:
                _leave(group, self._random.choice(members))

    def pids(self) -> list[Pid]:
        """The processes of the present members."""
        return [
            Pid.of(m.process.pid) for g in self.groups for m in [*g.members.values()] if m.alive
        ]

    def stop(self) -> list[str]:
        """Makes all members leave; gives the problems in words."""
        problems = []
        with self._lock:
            self._stopped = True
            for group in self.groups:
                problems += group.dead()
                for number in sorted(group.members):
                    problems += _leave(group, number)
        return problems

    def kill(self) -> None:
        for group in self.groups:
            group.end()

    def add_to(self, history: Path) -> None:
        """Appends the members' lines to the run's history, which nobody else writes any more."""
        with history.open("rb") as lines:
            count = sum(1 for _ in lines)
        with history.open("a", encoding="utf-8") as out:
            for number, group in enumerate(self.groups, 1):
                for line in group.lines():
                    if line["f"] in ("assigned_all", "leaving"):
                        continue  # a line for the harness, which is no part of the history
                    out.write(json.dumps(self._line(line, number * OPERATIONS_FROM, count)) + "\n")
                    count += 1

    def _line(self, line: dict[str, Any], base: int, index: int) -> dict[str, Any]:
        moved: dict[str, Any] = {n: line[n] + base for n in ("op", "poll_id") if n in line}
        return {"index": index, **self.common, **line, **moved}


def _leave(group: GroupRun, number: int) -> list[str]:
    try:
        group.leave(number)
    except ClientHangs as error:
        return [str(error)]
    return []
