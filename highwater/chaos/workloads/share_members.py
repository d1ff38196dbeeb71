"""A share group (KIP-932) of the Java client's members, in two JVMs (S1-S4).

One of them dies with all of its members again and again, and is started again.  The other one lives
until the group has taken everything that was in the topic when the workload stopped.  Until then
the members of both accept, release and reject records, keep some for too long, and leave.
"""

from __future__ import annotations

import signal
import threading
from pathlib import Path

from highwater.chaos.workloads.java_program import JavaProgram, compile_program
from highwater.chaos.workloads.recorder import Recorder
from highwater.chaos.workloads.workload_client import Client

DELIVERY_LIMIT, LOCK_MS = 10, 4000
PROPERTIES = {
    "group.share.delivery.count.limit": str(DELIVERY_LIMIT),
    "group.share.record.lock.duration.ms": str(LOCK_MS),
}
"""Of the brokers: locks that end while a member still has records, and deliveries enough that no
record is given up before a member has seen it."""
MEMBERS = 2
"""In each of the two processes."""
DRAIN_S, OWN_DRAIN_S = 90.0, 80
"""The time until the group has to have taken everything, and that after which the process that
waits for it says itself what is left."""
DIED = 137
"""The exit code of a process that ended itself, as the shell names one that was killed."""


class ShareGroup(Client):
    """Runs the members until the group has taken everything; `jars`: the folder of the client's."""

    def __init__(self, recorder: Recorder, jars: Path, topic: str) -> None:
        super().__init__(recorder, "share-group")
        self._jars = jars
        self._topic = topic
        self._over = threading.Event()
        self._mortal: JavaProgram | None = None
        self._ended_wrong: list[str] = []

    def work(self) -> None:
        folder = Path(self.recorder.spec.history).parent
        self._classpath = compile_program("ShareGroup", self._jars, folder)
        mortals = threading.Thread(target=self._die_again_and_again, daemon=True)
        mortals.start()
        living = self._start(0, drain=True)
        living.stop_when(self.stopping)
        code = living.note_all()
        self._over.set()
        if self._mortal is not None:
            self._mortal.kill()
        mortals.join()
        if code:
            self._ended_wrong.append(f"java ended with {code}: {living.last_words()}")
        if self._ended_wrong:
            raise RuntimeError("; ".join(self._ended_wrong))

    def _die_again_and_again(self) -> None:
        try:
            self._start_until_over()
        except Exception as error:  # or a run without a single death would pass for one with many
            self._ended_wrong.append(f"no further member dies: {type(error).__name__}: {error}")

    def _start_until_over(self) -> None:
        number = 0
        while not (self._over.is_set() or self._ended_wrong):
            number += 1
            program = self._mortal = self._start(number, drain=False)
            if self._over.is_set():
                program.kill()
            program.stop_when(self.stopping)
            if (code := program.note_all()) not in (DIED, -signal.SIGKILL):
                self._ended_wrong.append(f"java ended with {code}: {program.last_words()}")

    def _start(self, number: int, *, drain: bool) -> JavaProgram:
        name = f"share-{number}"
        given = {
            "name": name, "group": f"{self.recorder.spec.run}-share", "topic": self._topic,
            "members": MEMBERS, "delivery.limit": DELIVERY_LIMIT, "lock.ms": LOCK_MS,
            "drain": str(drain).lower(), "drain.s": OWN_DRAIN_S,
        }  # fmt: skip
        where = (self._classpath, given, number + 1)
        return JavaProgram(self.recorder, name, "ShareGroup", *where)
