"""The harness's end of the workload's process: orders in, events out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import trio

from highwater.chaos.workloads.recorder import CommonSpec
from highwater.child_processes import Pid
from highwater.client_calls import ClientHangs


class WorkloadDied(Exception):
    """The workload's process ended unasked."""


class Workload:
    def __init__(
        self,
        spec: CommonSpec,
        folder: Path,
        on_stats: Callable[[dict[str, Any]], None] = lambda stats: None,
        program: str = "worker",
    ) -> None:
        """`program`: worker or history_worker, the modules beside this one."""
        self.spec = spec
        self.stats: dict[str, Any] = {}
        self._on_stats = on_stats
        self._output = folder / "workload.log"
        spec_path = folder / "workload.json"
        spec_path.write_text(json.dumps(asdict(spec), indent=1))
        with self._output.open("wb") as sink:
            self._popen = subprocess.Popen(
                [sys.executable, "-I", "-m", f"{__package__}.{program}", str(spec_path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=sink,
                start_new_session=True,
            )
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        self.pid = Pid.of(self._popen.pid)
        self._stdin = trio.lowlevel.FdStream(os.dup(self._popen.stdin.fileno()))
        self._stdout = trio.lowlevel.FdStream(os.dup(self._popen.stdout.fileno()))
        self._popen.stdin.close()
        self._popen.stdout.close()
        self._events: dict[str, dict[str, Any]] = {}
        self._news = trio.Event()
        self._ended = False

    async def run(self) -> None:
        """Reads events until the process closes its output."""
        rest = b""
        async for data in self._stdout:
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                event = json.loads(line)
                if event["event"] == "stats":
                    self.stats = event
                    self._on_stats(event)
                else:
                    self._events[event["event"]] = event
                self._wake()
        self._ended = True
        self._wake()

    def _wake(self) -> None:
        self._news.set()
        self._news = trio.Event()

    async def wait_for(self, event: str, timeout_s: float) -> dict[str, Any]:
        """Waits for an event and returns it; raises WorkloadDied, or ClientHangs if it is late."""
        with trio.move_on_after(timeout_s):
            while event not in self._events:
                if self._ended:
                    raise WorkloadDied(self._last_words())
                await self._news.wait()
            return self._events.pop(event)
        raise ClientHangs(f"the workload has not told {event!r} within {timeout_s:g} s")

    async def order(self, do: str, **fields: Any) -> None:
        try:
            await self._stdin.send_all(json.dumps({"do": do, **fields}).encode() + b"\n")
        except (trio.BrokenResourceError, OSError) as error:
            raise WorkloadDied(self._last_words()) from error

    def _last_words(self) -> str:
        lines = self._output.read_text(errors="replace").strip().splitlines()
        return f"the workload ended: {lines[-1] if lines else 'it printed nothing'}"

    async def burst(self, rate: float) -> None:
        await self.order("burst", rate=rate)
        await trio.sleep(0.3 if rate == 0 else 0)  # until the next stats include the burst

    def acked_by(self, process_prefix: str) -> int:
        return sum(
            n
            for name, n in self.stats.get("by_process", {}).items()
            if name.startswith(process_prefix) and name.endswith(" acked")
        )

    async def close(self) -> None:
        """Ends the process, whatever its state."""
        with trio.CancelScope(shield=True):
            await self._stdin.aclose()
            self._popen.kill()
            await trio.to_thread.run_sync(self._popen.wait)
            await self._stdout.aclose()
