"""Producers and consumers that run during a user's test:
`python -I -m ...history_worker SPEC.json`.

Like `worker`, it takes orders as JSON lines and answers each with an event; its clients come and
go:

    order                                                  event at its end
    {"do": "add", "does": "produce" | "consume", "name",   "added"
     "kind", "topic": {"name", "partitions"},
     "rate", "acks"}
    {"do": "end", "name"}                                  "ended", with "late", "failed"
    {"do": "flush"}                                        "flushed": all so far is in the file
    {"do": "final", "topics", "timeout_s"}                 "final", with "problems": every record
                                                           was read, and all is in the file
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from highwater.chaos.workloads.kinds import new_consumer, new_producer
from highwater.chaos.workloads.pace import Pace
from highwater.chaos.workloads.recorder import CommonSpec, Recorder, Topic
from highwater.chaos.workloads.workload_client import Client
from highwater.client_calls import where
from highwater.verdict.history import HistoryWriter

END_S = 5.0
"""The time for a client's end, in addition to a producer's time for its last deliveries."""


class Worker:
    def __init__(self, spec: CommonSpec) -> None:
        self.spec = spec
        self.writer = HistoryWriter(Path(spec.history), run=spec.run, seed=spec.seed)
        self.recorder = Recorder(spec, self.writer)
        self.clients: dict[str, Client] = {}

    def obey(self, order: dict[str, Any]) -> None:
        match order.pop("do"):
            case "add":
                self.add(**order)
                tell("added")
            case "end":
                tell("ended", **self.end(**order))
            case "flush":
                self.writer.flush()
                tell("flushed")
            case "final":
                tell("final", **self.final(**order))

    def add(
        self, does: str, name: str, kind: str, topic: dict[str, Any], rate: float, acks: int
    ) -> None:
        on = Topic(**topic)
        if does == "produce":
            client = new_producer(kind, self.recorder, on, Pace(rate), name, acks)
        else:
            client = new_consumer(kind, self.recorder, [on], name)
        self.clients[name] = client
        client.thread.start()

    def end(self, name: str) -> dict[str, Any]:
        client = self.clients.pop(name)
        client.stopping.set()
        client.thread.join(self.spec.delivery_timeout_s + END_S)
        late = where(client.thread) if client.thread.is_alive() else ""
        return {"late": late, "failed": client.failure}

    def final(self, topics: list[dict[str, Any]], timeout_s: float) -> dict[str, Any]:
        from highwater.chaos.workloads.confluent import final_read

        self.recorder.phase = "final"
        problems = final_read(self.recorder, [Topic(**topic) for topic in topics], timeout_s)
        self.recorder.phase = "run"
        self.writer.flush()
        return {"problems": problems}


def tell(event: str, **fields: Any) -> None:
    print(json.dumps({"event": event, **fields}), flush=True)


def main() -> None:
    worker = Worker(CommonSpec(**json.loads(Path(sys.argv[1]).read_text())))
    tell("started")
    for line in sys.stdin:
        worker.obey(json.loads(line))
    os._exit(0)  # clients' threads may hang in a library; the history is on disk


if __name__ == "__main__":
    main()
