"""Programs of the Java client: one of them runs in a JVM, and its events go into the history.

They are compiled as the run starts, because a wheel carries no classes, so they need a JDK.
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from highwater.chaos.workloads.recorder import Recorder
from highwater.cluster.client_files import write
from highwater.cluster.processes.zookeeper_process import find_java

CLIENT = "java"
OPERATIONS_FROM = 1 << 41
"""The first operation number: above those of all other clients of the run."""
_JVM = ("-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_READ = ("poll", "acquire")
_SENT = {"ok": "acked", "info": "unknown"}


def compile_program(name: str, jars: Path, folder: Path) -> str:
    """Compiles NAME.java with what these programs share; gives the class path with which it runs.
    `jars`: the folder of the client's jars."""
    classpath = ":".join(map(str, sorted(jars.glob("*.jar"))))
    classes = folder / f"{name}-classes"
    sources = [str(Path(__file__).with_name(f"{part}.java")) for part in ("Workload", name)]
    command = [
        find_java(), "-m", "jdk.compiler/com.sun.tools.javac.Main", "-nowarn", "-d", str(classes),
        "-cp", classpath, *sources,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{name}.java cannot be compiled: {(done.stdout + done.stderr)[-500:]}")
    return f"{classpath}:{classes}"


def command(program: str, classpath: str, log4j: Path, settings: Path) -> list[str]:
    options = [*_JVM, f"-Dlog4j.configuration=file:{log4j}", "-cp", classpath]
    return [find_java(), *options, program, str(settings)]


class JavaProgram:
    """One run of a program.  `name`: of its files in the folder of the history; `given`: its own
    settings; `number`: which part of the operations' numbers is its own."""

    def __init__(
        self,
        recorder: Recorder,
        name: str,
        program: str,
        classpath: str,
        given: Mapping[str, object],
        number: int = 0,
    ) -> None:
        self.recorder = recorder
        self.first = OPERATIONS_FROM + (number << 32)
        folder, spec = Path(recorder.spec.history).parent, recorder.spec
        settings = {**spec.connect("java"), "workload.run": spec.run, "workload.seed": spec.seed}
        settings |= {f"workload.{key}": value for key, value in given.items()}
        file, quiet = folder / f"{name}.properties", folder / f"{name}.log4j"
        write(file, "".join(f"{key}={value}\n" for key, value in settings.items()))
        write(quiet, "log4j.rootLogger=OFF\n")
        self._log = folder / f"{name}.log"
        with self._log.open("ab") as errors:
            self._process = subprocess.Popen(
                command(program, classpath, quiet, file),
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
            )  # fmt: skip

    def note_all(self) -> int:
        """Writes its events into the history until it ends; gives its exit code.  A line that its
        death has cut is left out."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.endswith(b"\n"):
                self._note(json.loads(line))
        return self._process.wait()

    def last_words(self) -> str:
        return self._log.read_text(errors="replace").strip()[-500:]

    def stop_when(self, stopping: threading.Event) -> None:
        """Tells the program to stop as soon as this event is set, if it still runs."""

        def stop() -> None:
            stopping.wait()
            assert self._process.stdin is not None
            try:
                self._process.stdin.write(b"stop\n")
                self._process.stdin.flush()
            except OSError:  # it has ended
                return

        threading.Thread(target=stop, daemon=True).start()

    def kill(self) -> None:
        self._process.kill()

    def _note(self, line: dict[str, Any]) -> None:
        process, f, type_ = (line.pop(name) for name in ("process", "f", "type"))
        for name in ("op", "poll_id"):
            if name in line:
                line[name] += self.first
        self.recorder.writer.write(process, CLIENT, f, type_, **line)
        if f in _READ and "offset" in line:
            self.recorder.count(process, "polled")
        elif f == "send" and type_ in _SENT:
            self.recorder.count(process, _SENT[type_], line.get("error"))
        elif "error" in line:
            self.recorder.count(process, "unknown", line["error"])
