"""The copies of a user's application, as members of the cluster: `app`, `app-2`, ...

A copy is one process group, so that a shell's children are killed and paused with it.  One that
ends by itself is started again, as a supervisor would, but not for ever.
"""

from __future__ import annotations

import os
import re
import shlex
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP, SIGTERM, Signals
from typing import Any, Final

import trio

from highwater.child_processes import Child, Pid
from highwater.cluster.interface import Cluster, ClusterError, require_paused, require_running
from highwater.cluster.lives import DOWN, PAUSED, UP, Lives

RESTARTS: Final = 5
"""How often a copy that ends by itself is started again."""
TOO_OFTEN: Final = "six times"
RESTART_AFTER_S: Final = 1.0
GRACE_S: Final = 5.0
LAST_LINES: Final = 5
_LIBRDKAFKA: Final = re.compile(r"%\d\|\d+\.\d+\|")
SILENT: Final = ("it printed nothing",)


def name_of(copy: int) -> str:
    """`app`, `app-2`, ...; copies count from 1."""
    return "app" if copy == 1 else f"app-{copy}"


def last_words(output: str) -> tuple[str, ...]:
    """The last lines that an application printed itself; librdkafka's own log says less."""
    lines = [line for line in output.splitlines() if line.strip()]
    own = [line for line in lines if not _LIBRDKAFKA.match(line)]
    return tuple((own or lines)[-LAST_LINES:]) or SILENT


@dataclass(frozen=True, slots=True)
class End:
    """The end of a copy that nobody caused on purpose."""

    code: int | None
    lines: tuple[str, ...] = SILENT
    """The last lines that it printed."""
    excused: bool = False
    """Whether a fault had just shown it an error after which even a correct application may end."""

    def __str__(self) -> str:
        return f"ended by itself with code {self.code}: {' / '.join(self.lines)}"


@dataclass(slots=True)
class Copy:
    """One copy; its output over all its lives goes to `log`."""

    name: str
    command: str
    env: dict[str, str]
    log: Path
    child: Child | None = None
    wanted: bool = False
    started: float = 0.0
    """When its present life began, by trio's clock."""
    ends: list[End] = field(default_factory=list)
    """The ends that nobody caused on purpose."""
    excused_until: float = 0.0
    """Until this time, by trio's clock, an end does not count against it."""

    @property
    def failures(self) -> list[End]:
        """The ends that count against it."""
        return [end for end in self.ends if not end.excused]

    @property
    def running(self) -> bool:
        return self.child is not None and self.child.running

    def start(self) -> None:
        words = shlex.split(self.command)
        self.child = Child(self.name, words, output=self.log, cwd=Path.cwd(), env=self.env)
        self.wanted = True
        self.started = trio.current_time()

    def signal(self, number: Signals) -> None:
        if self.child is not None and self.child.running:
            os.killpg(self.child.pid.pid, number)

    async def end(self, number: Signals, within_s: float = 10.0) -> int | None:
        """Ends the copy on purpose; returns its exit code, or None if it still runs."""
        self.wanted = False
        self.signal(SIGCONT)
        self.signal(number)
        with trio.move_on_after(within_s):
            while self.running:
                await trio.sleep(0.02)
        return None if self.child is None else self.child.popen.poll()


class AppCluster:
    """A cluster whose members are the application's copies, too."""

    def __init__(
        self, cluster: Cluster, copies: Sequence[Copy], say: Callable[[str], None]
    ) -> None:
        self._cluster = cluster
        self.copies = {copy.name: copy for copy in copies}
        self.copies_lives = Lives()
        """The copies' states; `lives` of the cluster has only the processes that it started."""
        self.gave_up = trio.Event()
        """Set when a copy has ended by itself too often."""
        self._say = say
        self.after_an_end: Callable[[str], Awaitable[None]] | None = None
        """Is called with the name of each copy that has ended by itself."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    def launch(self, copy: Copy) -> None:
        copy.start()
        self.copies_lives.note(copy.name, UP)

    def members(self) -> list[str]:
        return [*self._cluster.members(), *self.copies]

    def running(self, member: str) -> bool:
        copy = self.copies.get(member)
        return copy.running if copy else self._cluster.running(member)

    def paused(self, member: str) -> bool:
        copy = self.copies.get(member)
        if copy is None:
            return self._cluster.paused(member)
        return copy.child is not None and copy.child.paused

    async def kill(self, member: str) -> None:
        if (copy := self.copies.get(member)) is None:
            await self._cluster.kill(member)
            return
        require_running(self, member)  # type: ignore[arg-type]
        await copy.end(SIGKILL)
        self.copies_lives.look(self.running)

    async def stop(self, member: str, timeout_s: float = GRACE_S) -> int:
        if (copy := self.copies.get(member)) is None:
            return await self._cluster.stop(member)
        require_running(self, member)  # type: ignore[arg-type]
        code = await copy.end(SIGTERM, timeout_s)
        if code is None:
            code = await copy.end(SIGKILL)
        self.copies_lives.look(self.running)
        return -1 if code is None else code

    async def start(self, member: str) -> None:
        if (copy := self.copies.get(member)) is None:
            await self._cluster.start(member)
            return
        if copy.running:
            raise ClusterError(f"{member} runs already")
        self.launch(copy)

    async def wait_ready(self, member: str) -> None:
        if member not in self.copies:
            await self._cluster.wait_ready(member)

    async def pause(self, member: str) -> None:
        if (copy := self.copies.get(member)) is None:
            await self._cluster.pause(member)
            return
        require_running(self, member)  # type: ignore[arg-type]
        await self._signal(member, copy, SIGSTOP, True)

    async def resume(self, member: str) -> None:
        if (copy := self.copies.get(member)) is None:
            await self._cluster.resume(member)
            return
        require_paused(self, member)  # type: ignore[arg-type]
        await self._signal(member, copy, SIGCONT, False)

    async def _signal(self, member: str, copy: Copy, number: Signals, paused: bool) -> None:
        copy.signal(number)
        with trio.move_on_after(GRACE_S):
            while self.running(member) and self.paused(member) is not paused:
                await trio.sleep(0.02)
        if self.running(member):
            self.copies_lives.note(member, PAUSED if paused else UP)

    def pids(self) -> list[Pid]:
        return []  # the clients are the copies, and those are paused as members

    async def supervise(self) -> None:
        """Starts copies again that end by themselves, and notices brokers that do; until
        cancelled."""
        while True:
            self._cluster.lives.look(self._cluster.running)
            for copy in self.copies.values():
                if not copy.wanted or copy.running or copy.child is None:
                    continue
                words = last_words(copy.child.new_output())
                excused = trio.current_time() < copy.excused_until
                end = End(copy.child.popen.poll(), words, excused)
                copy.ends.append(end)
                copy.wanted = False
                self.copies_lives.note(copy.name, DOWN)
                self._say(f"{copy.name} {end}")
                if self.after_an_end is not None:
                    await self.after_an_end(copy.name)
                if len(copy.failures) > RESTARTS:
                    self.gave_up.set()
                else:
                    await trio.sleep(RESTART_AFTER_S)
                    if not copy.running:  # a fault's end may have been quicker
                        self.launch(copy)
            await trio.sleep(0.05)

    def ends(self) -> list[str]:
        """A line for each end of a copy by itself; equal ones share a line."""
        told = Counter(f"{copy.name} {end}" for copy in self.copies.values() for end in copy.ends)
        return [f"{line} ({n} times)" if n > 1 else line for line, n in told.items()]

    def why_given_up(self) -> str | None:
        """A sentence about the copy that ended too often; None if there is none."""
        for copy in self.copies.values():
            if len(copy.failures) > RESTARTS:
                who = "the application" if len(self.copies) == 1 else copy.name
                last = copy.failures[-1]
                alike = {end.code for end in copy.failures} == {last.code}
                times = TOO_OFTEN if alike else f"{TOO_OFTEN}, the last time"
                return f"{who} ended {times} with code {last.code}: {last.lines[-1]}"
        return None

    async def end_all(self) -> None:
        async with trio.open_nursery() as nursery:
            for copy in self.copies.values():
                if copy.running:
                    nursery.start_soon(self.stop, copy.name)
