"""Transactions by the Java client: the tellers and the copier of `transactional`, in one JVM.

librdkafka's transactions have one epoch for all of a producer's transactions.  Java's client since
4.0 gets a new epoch with the end of each one (transaction.version 2, KIP-890), where the brokers
finalize it.
"""

from __future__ import annotations

from pathlib import Path

from highwater.chaos.workloads.java_program import CLIENT, JavaProgram, compile_program
from highwater.chaos.workloads.recorder import Recorder
from highwater.chaos.workloads.workload_client import Client

__all__ = ["CLIENT", "JavaTransactions"]


class JavaTransactions(Client):
    """Runs the program until it is stopped and has copied everything.

    `jars`: the folder of the client's jars; `partitions`: those of each of the topics.
    """

    def __init__(self, recorder: Recorder, jars: Path, partitions: int) -> None:
        super().__init__(recorder, "java-transactions")
        self.jars = jars
        self.partitions = partitions

    def work(self) -> None:
        spec = self.recorder.spec
        classpath = compile_program("Transactions", self.jars, Path(spec.history).parent)
        given = {"partitions": self.partitions, "value.bytes": spec.value_bytes}
        program = JavaProgram(self.recorder, self.name, "Transactions", classpath, given)
        program.stop_when(self.stopping)
        if code := program.note_all():
            raise RuntimeError(f"java ended with {code}: {program.last_words()}")
