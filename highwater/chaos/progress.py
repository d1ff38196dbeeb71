"""The display of a running run: phases, faults as they fire, and the clients' counts."""

from __future__ import annotations

import time
from typing import Any

from rich.console import Console
from rich.status import Status

QUIET_EVERY_S = 5.0


class Progress:
    """Shows one live line at the bottom of a terminal; elsewhere (a log) prints counts every five
    seconds."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True)
        self._began = time.monotonic()
        self._phase = ""
        self._phase_began = self._began
        self._lasts: float | None = None
        self._counts = ""
        self._status: Status | None = None
        self._said = 0.0

    def __enter__(self) -> Progress:
        if self.console.is_terminal:
            self._status = self.console.status("")
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None

    def phase(self, name: str, lasts_s: float | None = None) -> None:
        self._phase, self._lasts, self._counts = name, lasts_s, ""
        self._phase_began = time.monotonic()
        self.console.print(f"[bold]{self._clock()}  {name}[/bold]", soft_wrap=True)
        self._refresh()

    def say(self, line: str) -> None:
        self.console.print(
            f"{self._clock()}    {line}", markup=False, highlight=False, soft_wrap=True
        )

    def say_from_thread(self, line: str) -> None:
        self.say(line)

    def stats(self, event: dict[str, Any]) -> None:
        self._counts = (
            f"acked {event['acked']}  unknown {event['unknown']}"
            f"  failed {event['failed']}  polled {event['polled']}"
        )
        self._refresh()
        now = time.monotonic()
        if self._status is None and now - self._said > QUIET_EVERY_S:
            self._said = now
            self.say(self._counts)

    def elapsed_s(self) -> float:
        return time.monotonic() - self._began

    def _clock(self) -> str:
        return f"{self.elapsed_s():6.1f}s"

    def _refresh(self) -> None:
        if self._status is None:
            return
        spent = time.monotonic() - self._phase_began
        of = f" {spent:.0f}/{self._lasts:.0f} s" if self._lasts else ""
        self._status.update(f"{self._phase}{of}   {self._counts}")
