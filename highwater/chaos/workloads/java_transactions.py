"""Transactions by the Java client: the tellers and the copier of `transactional`, in one JVM.

librdkafka's transactions have one epoch for all of a producer's transactions.  Java's client since
4.0 gets a new epoch with the end of each one (transaction.version 2, KIP-890), where the brokers
finalize it.  `Transactions.java` prints its events; this client writes them into the history.
"""

from __future__ import annotations

import json
import subprocess
import threading
from pathlib import Path
from typing import Any

from highwater.chaos.workloads.recorder import Recorder
from highwater.chaos.workloads.workload_client import Client
from highwater.cluster.client_files import write
from highwater.cluster.processes.zookeeper_process import find_java

CLIENT = "java"
OPERATIONS_FROM = 1 << 41
"""The first operation number: above those of all other clients of the run."""
_JVM = ("-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_KINDS = {"ok": "acked", "info": "unknown"}


class JavaTransactions(Client):
    """Runs the program until it is stopped and has copied everything.

    `jars`: the folder of the client's jars; `partitions`: those of each of the topics.  The program
    needs a JDK, because Java compiles its source as it starts.
    """

    def __init__(self, recorder: Recorder, jars: Path, partitions: int) -> None:
        super().__init__(recorder, "java-transactions")
        self.jars = jars
        self.partitions = partitions

    def work(self) -> None:
        folder = Path(self.recorder.spec.history).parent
        log = folder / f"{self.name}.log"
        with log.open("wb") as errors:
            process = subprocess.Popen(
                self._command(folder),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        threading.Thread(target=self._stop, args=(process,), daemon=True).start()
        assert process.stdout is not None
        for line in process.stdout:
            self._note(json.loads(line))
        if process.wait() != 0:
            last = log.read_text(errors="replace").strip()[-500:]
            raise RuntimeError(f"java ended with {process.returncode}: {last}")

    def _command(self, folder: Path) -> list[str]:
        spec = self.recorder.spec
        given = {
            **spec.connect("java"),
            "workload.run": spec.run,
            "workload.seed": spec.seed,
            "workload.partitions": self.partitions,
            "workload.value.bytes": spec.value_bytes,
        }
        settings = folder / f"{self.name}.properties"
        write(settings, "".join(f"{name}={value}\n" for name, value in given.items()))
        quiet = folder / f"{self.name}.log4j"
        write(quiet, "log4j.rootLogger=OFF\n")
        source = Path(__file__).with_name("Transactions.java")
        options = [*_JVM, f"-Dlog4j.configuration=file:{quiet}", "-cp", f"{self.jars}/*"]
        return [find_java(), *options, str(source), str(settings)]

    def _stop(self, process: subprocess.Popen[bytes]) -> None:
        """Tells the program to stop when this client is."""
        self.stopping.wait()
        assert process.stdin is not None
        try:
            process.stdin.write(b"stop\n")
            process.stdin.flush()
        except OSError:  # it has ended, and `work` says why
            return

    def _note(self, line: dict[str, Any]) -> None:
        process, f, type_ = (line.pop(name) for name in ("process", "f", "type"))
        for name in ("op", "poll_id"):
            if name in line:
                line[name] += OPERATIONS_FROM
        self.recorder.writer.write(process, CLIENT, f, type_, **line)
        if f == "poll" and "offset" in line:
            self.recorder.count(process, "polled")
        elif f == "send" and type_ in _KINDS:
            self.recorder.count(process, _KINDS[type_], line.get("error"))
        elif "error" in line:
            self.recorder.count(process, "unknown", line["error"])
