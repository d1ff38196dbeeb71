"""Each phase of each command with a call of a client library that does not return: the command
ends within its limit, and names the phase and the call."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import confluent_kafka
import confluent_kafka.admin
import pytest
import trio

from highwater import client_calls
from highwater.bench import fetch_wait, rebalancing
from highwater.bench.figures.sides import BenchFailed
from highwater.bench.loads import bench_topics, load_process
from highwater.chaos import app_verdict
from highwater.chaos.workloads import confluent as confluent_workload
from highwater.chaos.workloads.history_worker import Worker
from highwater.chaos.workloads.recorder import CommonSpec, Recorder, Topic
from highwater.chaos.workloads.workload_process import Workload
from highwater.client_calls import ClientHangs
from highwater.cluster import trace_reader
from highwater.verdict.contracts import contract_model, reader
from highwater.verdict.contracts.duck_engine import RecordsUnreadable
from highwater.verdict.contracts.reader import Reader
from highwater.verdict.history import HistoryWriter

LIMIT_S = 0.1


class StandIn:
    """A consumer, producer and admin client of a topic with one record; one call hangs."""

    hangs: ClassVar[str] = ""
    over: ClassVar[threading.Event]

    def __init__(self, *settings: Any) -> None:
        self.read = False

    def _call(self, name: str, result: Any = None) -> Any:
        if name == self.hangs:
            self.over.wait()
        return result

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        place = SimpleNamespace(leader=1, isrs=[1])
        topics = {"orders": SimpleNamespace(partitions={0: place})}
        topics["__consumer_offsets"] = topics["orders"]
        return self._call("list_topics", SimpleNamespace(topics=topics))

    def get_watermark_offsets(self, *of: Any, timeout: float = -1) -> tuple[int, int]:
        found: tuple[int, int] = self._call("get_watermark_offsets", (0, 1))
        return found

    def assign(self, places: Any) -> None:
        self._call("assign")

    def consume(self, count: int, timeout: float) -> list[Any]:
        self._call("consume")
        came = [] if self.read else [Message()]
        self.read = True
        return came

    def pause(self, places: Any) -> None: ...

    def close(self) -> None:
        self._call("close")

    def produce(self, *record: Any, **more: Any) -> None: ...

    def poll(self, timeout: float) -> None: ...

    def flush(self, timeout: float) -> int:
        left: int = self._call("flush", 0)
        return left

    def _futures(self, wanted: list[Any]) -> dict[Any, Any]:
        names = (getattr(one, "topic", None) or getattr(one, "group_id", one) for one in wanted)
        return {name: Future(self) for name in names}

    create_topics = list_consumer_group_offsets = _futures

    def delete_topics(self, wanted: list[Any], **more: Any) -> dict[Any, Any]:
        return self._futures(wanted)

    def incremental_alter_configs(self, wanted: list[Any]) -> dict[Any, Any]:
        return {one: Future(self) for one in wanted}


class Future:
    def __init__(self, client: StandIn) -> None:
        self._client = client

    def result(self, timeout: float | None = None) -> Any:
        return self._client._call("result", SimpleNamespace(topic_partitions=[]))


class Message:
    def error(self) -> None:
        return None

    def topic(self) -> str:
        return "orders"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return 0

    def timestamp(self) -> tuple[int, int]:
        return 1, 1000

    def key(self) -> bytes:
        return b"ada"

    def value(self) -> bytes:
        return b'{"id": 1}'

    def headers(self) -> None:
        return None

    def leader_epoch(self) -> None:
        return None


@pytest.fixture(autouse=True)
def stand_ins(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for module, names in (
        (confluent_kafka, ("Consumer", "Producer")),
        (confluent_kafka.admin, ("AdminClient",)),
        (reader, ("Consumer",)),
        (app_verdict, ("AdminClient",)),
    ):
        for name in names:
            monkeypatch.setattr(module, name, StandIn)
    for own in (reader, app_verdict, trace_reader, confluent_workload, rebalancing, fetch_wait):
        monkeypatch.setattr(own, "SOON_S", LIMIT_S)
    monkeypatch.setattr(reader, "ANSWER_S", LIMIT_S)
    monkeypatch.setattr(bench_topics, "ANSWER_S", LIMIT_S)
    StandIn.over = threading.Event()
    StandIn.hangs = ""
    yield
    StandIn.over.set()


def told_by(work: Callable[[], object], *errors: type[Exception]) -> str:
    """Its error, in a thread that a hang does not take with it."""
    found: list[str] = []
    told: tuple[type[Exception], ...] = (ClientHangs, *errors)

    def run() -> None:
        try:
            work()
            found.append("nothing")
        except told as error:
            found.append(str(error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(10)
    assert found, f"{work} hangs"
    return found[0]


def a_reader() -> Reader:
    contract = {"topics": {"orders": {"sequence": {"json": "$.id"}, "must": ["no gap"]}}}
    read = contract_model.load("orders.json", lambda file: json.dumps(contract))
    return Reader(read, "127.0.0.1:1", {}, lambda line: None)


@pytest.mark.parametrize("call", ["list_topics", "get_watermark_offsets", "consume"])
def test_a_contracts_reading(call: str) -> None:
    StandIn.hangs = call
    told = told_by(lambda: list(a_reader().records()), RecordsUnreadable)
    assert told.startswith(f"127.0.0.1:1: reading the topics: StandIn.{call} has not returned")


def test_the_end_of_a_contracts_reading_is_a_note() -> None:
    StandIn.hangs = "close"
    read = a_reader()
    records: list[Any] = []
    assert told_by(lambda: records.extend(read.records())) == "nothing"
    assert len(records) == 1
    assert read.notes == ["reading the topics: StandIn.close has not returned within 0.1 s"]


@pytest.mark.parametrize("call", ["list_topics", "flush"])
def test_a_traced_record(call: str) -> None:
    StandIn.hangs = call
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trace_reader, "SOON_S", LIMIT_S - (10 if call == "list_topics" else 30))
        told = told_by(lambda: trace_reader._produce("127.0.0.1:1", "orders"))
    assert told == f"sending a record to orders: StandIn.{call} has not returned within 0.1 s"


def test_a_groups_offsets_for_the_reason_of_a_loss() -> None:
    StandIn.hangs = "result"
    found: list[int | None] = []
    told = told_by(lambda: found.append(app_verdict._committed("", "app", "orders", 0)))
    assert (told, found) == ("nothing", [None]), "the run's verdict does not rest on it"


@pytest.mark.parametrize(
    ("work", "call", "told"),
    [
        (lambda: trio.run(bench_topics.create_topic, "", "orders", 1, 1, {}), "result",
         "making the topic orders: Future.result"),
        (lambda: trio.run(bench_topics.create_topic, "", "orders", 1, 1, {}), "list_topics",
         "making the topic orders: StandIn.list_topics"),
        (lambda: trio.run(bench_topics.delete_topic, "", "orders"), "result",
         "deleting the topic orders: Future.result"),
        (lambda: trio.run(bench_topics.alter_topic, "", "orders", {}), "result",
         "altering the topic orders: Future.result"),
    ],
)  # fmt: skip
def test_a_benchmarks_topics(work: Callable[[], object], call: str, told: str) -> None:
    StandIn.hangs = call
    assert told_by(work) == f"{told} has not returned within 0.1 s"


def test_a_benchmarks_coordinator(monkeypatch: pytest.MonkeyPatch) -> None:
    StandIn.hangs = "list_topics"
    monkeypatch.setattr(rebalancing, "SOON_S", LIMIT_S - 30)
    told = told_by(lambda: rebalancing._coordinator(""))
    assert told == "asking for the coordinator: StandIn.list_topics has not returned within 0.1 s"


def test_a_benchmarks_producer() -> None:
    StandIn.hangs = "flush"

    async def main() -> None:
        async with rebalancing.producing("", 1):
            pass

    told = told_by(lambda: trio.run(main))
    assert told == "ending the producer: Thread.join has not returned within 0.1 s"


def test_a_benchmarks_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_process, "LOAD_S", LIMIT_S)
    told = told_by(lambda: trio.run(load_process.ended, ["sleep", "600"]), BenchFailed)
    assert told == "a load has not ended within 0.1 s: sleep 600"


@pytest.mark.parametrize(
    ("call", "told"),
    [
        ("get_watermark_offsets", "low, high = consumer.get_watermark_offsets("),
        ("consume", "messages = consumer.consume("),
        ("close", "StandIn.close"),
    ],
)
def test_the_full_read(tmp_path: Path, call: str, told: str) -> None:
    StandIn.hangs = call
    spec = CommonSpec(run="r", seed=1, bootstrap="", history=str(tmp_path / "history.jsonl"))
    recorder = Recorder(spec, HistoryWriter(tmp_path / "history.jsonl", run="r", seed=1))
    problems: list[str] = []

    def work() -> None:
        problems.extend(
            confluent_workload.final_read(recorder, [Topic("orders", 1, False)], LIMIT_S)
        )

    assert told_by(work) == "nothing"
    assert len(problems) == 1
    assert problems[0].startswith(f"reading everything back: {told}")


def test_a_client_of_a_history_that_does_not_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    StandIn.hangs = "close"
    monkeypatch.setattr("highwater.chaos.workloads.history_worker.END_S", LIMIT_S)
    spec = CommonSpec(
        run="r", seed=1, bootstrap="", history=str(tmp_path / "h"), delivery_timeout_s=0
    )
    worker = Worker(spec)
    worker.add(
        "consume", "consumer-1", "confluent-kafka", {"name": "orders", "partitions": 1}, 1, 1
    )
    late: dict[str, Any] = {}
    assert told_by(lambda: late.update(worker.end("consumer-1"))) == "nothing"
    assert late["late"].startswith("consumer.close() (confluent.py:")


@pytest.mark.thorough
async def test_a_workload_that_does_not_answer(tmp_path: Path) -> None:
    spec = CommonSpec(run="r", seed=1, bootstrap="", history=str(tmp_path / "history.jsonl"))
    workload = Workload(spec, tmp_path, program="history_worker")
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(workload.run)
            await workload.wait_for("started", 60)
            with pytest.raises(ClientHangs) as late:
                await workload.wait_for("final", LIMIT_S)
            nursery.cancel_scope.cancel()
    finally:
        await workload.close()
    assert str(late.value) == "the workload has not told 'final' within 0.1 s"


def test_where_a_thread_stands_that_is_not_ours() -> None:
    thread = threading.Thread(target=StandIn.over.wait, daemon=True)
    thread.start()
    assert client_calls.where(thread) == "code that is not Highwater's"
