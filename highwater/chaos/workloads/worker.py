"""The workload's process: `python -I -m highwater.chaos.workloads.worker SPEC.json`.

Orders come as JSON lines on its standard input, and events leave as JSON lines on its standard
output:

    order                         effect                                           event at its end
    {"do": "burst", "rate": R}    the acks=1 producer sends R records a second     none
                                  to the lossy topic; rate 0 ends the burst
    {"do": "stop"}                producers stop and flush, consumers catch up     "stopped", with
                                                                                   "late", "failed"
    {"do": "final",               the full read of every topic, in at most         "final", with
     "timeout_s": S}              S seconds                                        "problems"
    {"do": "exit"}                the history is closed, and the process ends      "closed"

An event is {"event": NAME, ...}.  "started" is the first; "stats" comes four times a second.
"late" has the clients that did not end in time, and the call in which each one hangs; "failed", the
clients that an error ended, and its text; "problems", the partitions that could not be read.  When
standard input ends, the process ends too, because the harness is gone.
"""

from __future__ import annotations

import faulthandler
import json
import logging
import os
import sys
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from highwater.chaos.workloads.kinds import new_consumer, new_producer
from highwater.chaos.workloads.pace import Pace
from highwater.chaos.workloads.recorder import Recorder, Spec, Topic
from highwater.chaos.workloads.workload_client import Client
from highwater.client_calls import where
from highwater.verdict.history import HistoryWriter

TRICKLE = 10.0
"""acks=1 records a second on the lossy topic, so that it has records below its HW."""


def read_spec(path: Path) -> Spec:
    raw = json.loads(path.read_text())
    raw["safe"], raw["lossy"] = Topic(**raw["safe"]), Topic(**raw["lossy"])
    return Spec(**raw)


class Workload:
    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.writer = HistoryWriter(Path(spec.history), run=spec.run, seed=spec.seed)
        self.topics = [spec.safe, spec.lossy]
        self.recorder = Recorder(spec, self.writer, self.topics)
        self.lossy_pace = Pace(TRICKLE)
        self.producers: list[Client] = [
            new_producer(kind, self.recorder, spec.safe, Pace(spec.rate), f"producer-{kind}")
            for kind in spec.producers
        ]
        self.producers.append(self._lossy())
        self.consumers: list[Client] = [
            new_consumer(kind, self.recorder, self.topics, f"consumer-{kind}")
            for kind in spec.consumers
        ]
        self.tellers: list[Client] = []
        self.copiers: list[Client] = []
        self.transactional: list[Topic] = []
        if spec.transactions:
            self._transactions()
        self.sharing: list[Client] = []
        if spec.share_group:
            from highwater.chaos.workloads.share_members import ShareGroup

            jars = Path(spec.java_jars)
            self.sharing.append(ShareGroup(self.recorder, jars, spec.safe.name))
        self._out = threading.Lock()

    def _lossy(self) -> Client:
        from highwater.chaos.workloads.confluent import ConfluentProducer

        pace = self.lossy_pace
        return ConfluentProducer(
            self.recorder, self.spec.lossy, pace, acks=1, name="producer-acks1"
        )

    def _transactions(self) -> None:
        from highwater.chaos.workloads import transactional as t
        from highwater.chaos.workloads.confluent import ConfluentProducer
        from highwater.chaos.workloads.java_transactions import CLIENT as JAVA
        from highwater.chaos.workloads.java_transactions import JavaTransactions
        from highwater.chaos.workloads.native import NativeConsumer

        partitions = self.spec.safe.partitions
        bank, source, target = (Topic(n, partitions) for n in (t.BANK, t.COPY_IN, t.COPY_OUT))
        self.transactional = [bank, source, target]
        name, pace = "producer-copy-in", Pace(self.spec.rate / 2)
        self.producers.append(ConfluentProducer(self.recorder, source, pace, acks=-1, name=name))
        if self.spec.transactions == JAVA:
            jars = Path(self.spec.java_jars)
            self.copiers.append(JavaTransactions(self.recorder, jars, partitions))
        else:
            self.tellers += [t.Teller(self.recorder, bank, n) for n in range(t.TELLERS)]
            self.copiers.append(t.Copier(self.recorder, source, target))
        topics, name = [bank, target], "consumer-committed"
        self.consumers.append(NativeConsumer(self.recorder, topics, name, read_committed=True))

    def tell(self, event: str, **fields: Any) -> None:
        with self._out:
            print(json.dumps({"event": event, **fields}), flush=True)

    def start(self) -> None:
        clients = (*self.consumers, *self.sharing, *self.copiers, *self.tellers, *self.producers)
        for client in clients:
            client.thread.start()
        threading.Thread(target=self._stats, daemon=True).start()
        self.tell("started")

    def _stats(self) -> None:
        while True:
            counts = asdict(self.recorder.counts)
            self.tell("stats", **counts)
            time.sleep(0.25)

    def stop(self) -> None:
        """Stops the clients: producers flush, copiers copy the rest; consumers get a moment to see
        the last acknowledged records.
        """
        late = self._end(self.producers, self.spec.delivery_timeout_s + 5)
        if self.transactional:
            from highwater.chaos.workloads.transactional import END_S

            late += self._end([*self.tellers, *self.copiers], END_S)
        if self.sharing:
            from highwater.chaos.workloads.share_members import DRAIN_S

            late += self._end(self.sharing, DRAIN_S)
        time.sleep(1.0)
        late += self._end(self.consumers, 10)
        if late:  # write to workload.log in which call each one hangs
            faulthandler.dump_traceback(all_threads=True)
        clients = (*self.producers, *self.tellers, *self.copiers, *self.sharing, *self.consumers)
        self.tell("stopped", late=late, failed={c.name: c.failure for c in clients if c.failure})

    def _end(self, clients: list[Client], within_s: float) -> list[str]:
        """Ends clients; gives those that did not end in time."""
        for client in clients:
            client.stopping.set()
        deadline = time.monotonic() + within_s
        for client in clients:
            client.thread.join(max(0.1, deadline - time.monotonic()))
        return [
            f"{client.name} (it is in {where(client.thread)})"
            for client in clients
            if client.thread.is_alive()
        ]

    def final(self, timeout_s: float) -> None:
        from highwater.chaos.workloads.confluent import final_read

        self.recorder.phase = "final"
        problems = final_read(self.recorder, self.topics, timeout_s)
        if self.transactional:
            import trio

            from highwater.chaos.workloads.native import final_reads

            problems += trio.run(final_reads, self.recorder, self.transactional, timeout_s)
        self.tell("final", problems=problems)

    def close(self) -> None:
        self.writer.close()
        self.tell("closed", **asdict(self.recorder.counts))

    def obey(self, order: dict[str, Any]) -> bool:
        """Carries out an order; False after the last one."""
        match order["do"]:
            case "burst":
                self.lossy_pace.rate = float(order["rate"]) or TRICKLE
            case "stop":
                self.stop()
            case "final":
                self.final(float(order["timeout_s"]))
            case "exit":
                self.close()
                return False
        return True


def _tell_why() -> None:
    """Sends the clients' own logs to workload.log, as they say why a consumer began again, say."""
    logging.basicConfig(
        level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    for name in ("kafka.consumer.fetcher", "kafka.consumer.subscription_state"):
        logging.getLogger(name).setLevel(logging.INFO)


def main() -> None:
    _tell_why()
    workload = Workload(read_spec(Path(sys.argv[1])))
    workload.start()
    for line in sys.stdin:
        if not workload.obey(json.loads(line)):
            break
    sys.stdout.flush()
    os._exit(0)  # clients' threads may hang in a library; the history is on disk


if __name__ == "__main__":
    main()
