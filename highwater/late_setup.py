"""The part of `scripts/setup` that is at work beside a demo: PySpark comes while the cluster runs.

`scripts/demo` starts it and then becomes the demo, so it is this process's own child.  Its pid and
the environment's folder come by HIGHWATER_LATE_SETUP.  A child's pid cannot be a stranger's, and
its exit code can be had; to other processes, which inherit the setting, it means nothing.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import psutil

SETTING: Final = "HIGHWATER_LATE_SETUP"
LIMIT_S: Final = 180.0
"""How long a verdict waits for it: a slow line needs some minutes for PySpark's 430 MB."""


class LateSetupFailed(Exception):
    """It ended with an error, or not in time; the message says so in a line."""


@dataclass(frozen=True, slots=True)
class _Setup:
    process: psutil.Process
    folder: Path
    """The environment's folder, which it fills."""

    @property
    def has_spark(self) -> bool:
        return (self.folder / "setup-spark-stamp").exists()

    def last_line(self) -> str:
        try:
            text = (self.folder / "setup-later.log").read_text(errors="replace")
        except OSError:
            text = ""
        said = [line.strip() for line in text.splitlines() if line.strip()]
        return said[-1].removeprefix("setup: ") if said else "it was killed"


def _child(env: Mapping[str, str]) -> _Setup | None:
    """The setup that this process started, whether it has ended or not; None without one."""
    pid, _, folder = env.get(SETTING, "").partition(" ")
    if not pid:
        return None
    import psutil  # late: few have such a child, and a start of a cluster waits for imports

    try:
        found = psutil.Process(int(pid))
        return _Setup(found, Path(folder)) if found.ppid() == os.getpid() else None
    except (ValueError, psutil.Error):
        return None


def spark_is_there_by_half(env: Mapping[str, str] = os.environ) -> bool:
    setup = _child(env)
    return setup is not None and not setup.has_spark


def wait(
    progress: Callable[[str], None], limit_s: float = LIMIT_S, env: Mapping[str, str] = os.environ
) -> None:
    """Returns when PySpark is whole; at once where none is still to come.

    Raises LateSetupFailed.
    """
    setup = _child(env)
    if setup is None:
        return
    import psutil

    deadline = time.monotonic() + limit_s
    told, code = False, None
    while not setup.has_spark:
        if code is not None:
            raise LateSetupFailed(f"PySpark could not be installed: {setup.last_line()}")
        with contextlib.suppress(psutil.TimeoutExpired):
            code = setup.process.wait(0.1)
            continue  # it may have ended just after its stamp
        if not told:
            progress(f"waiting for PySpark, which is being installed (at most {limit_s:.0f} s)")
            told = True
        if time.monotonic() > deadline:
            raise LateSetupFailed(
                f"PySpark was not installed within {limit_s:.0f} s (scripts/setup goes on with it)"
            )
