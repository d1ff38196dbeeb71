"""Each operation ends exactly once, and an unknown outcome is never counted as a failure."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from highwater.chaos.workloads.kafka_python import error_name
from highwater.chaos.workloads.pace import Pace
from highwater.chaos.workloads.recorder import Reader, Recorder, Sender, Spec, Topic
from highwater.chaos.workloads.worker import read_spec
from highwater.verdict.history import HistoryWriter, check_value, read_lines

SAFE, LOSSY = Topic("safe", 3), Topic("lossy", 1, expect_loss=True)


def spec(folder: Path) -> Spec:
    return Spec(
        run="r",
        seed=7,
        bootstrap="127.0.0.1:9092",
        history=str(folder / "history.jsonl"),
        safe=SAFE,
        lossy=LOSSY,
    )


def recorded(folder: Path, use: Any) -> list[dict[str, Any]]:
    """The lines that `use(recorder)` leaves."""
    writer = HistoryWriter(folder / "history.jsonl", run="r", seed=7)
    use(Recorder(spec(folder), writer, [SAFE, LOSSY]))
    writer.close()
    return list(read_lines(folder / "history.jsonl"))


def test_an_operation_ends_once_whoever_is_first(tmp_path: Path) -> None:
    def use(recorder: Recorder) -> None:
        sender = Sender(recorder, "p-0", "test", acks=-1, idempotent=True)
        op, _, value = sender.invoke(SAFE, 2)
        assert check_value(value) is not None
        assert sender.outstanding == 1
        sender.ok(op, 17)
        sender.error(op, "REQUEST_TIMED_OUT")
        sender.abandon()
        assert sender.outstanding == 0

    invoke, ok = recorded(tmp_path, use)
    assert (invoke["type"], ok["type"]) == ("invoke", "ok")
    assert invoke["op"] == ok["op"]
    assert (ok["offset"], ok["partition"], ok["acks"], ok["expect_loss"]) == (17, 2, -1, False)
    assert ok["value"] == invoke["value"]


def test_endings(tmp_path: Path) -> None:
    def use(recorder: Recorder) -> None:
        sender = Sender(recorder, "p-0", "test", acks=1, idempotent=False)
        ops = [sender.invoke(LOSSY, 0)[0] for _ in range(5)]
        sender.error(ops[0], "NOT_LEADER_OR_FOLLOWER")
        sender.error(ops[1], "NOT_LEADER_OR_FOLLOWER", attempts=1)
        sender.error(ops[2], "REQUEST_TIMED_OUT", proven=True)
        sender.ok(ops[3], -1)
        sender.abandon()
        counts = recorder.counts
        assert (counts.acked, counts.failed, counts.unknown) == (0, 2, 3)

    endings = [line["type"] for line in recorded(tmp_path, use)[5:]]
    assert endings == ["info", "fail", "fail", "info", "info"]


def test_polls(tmp_path: Path) -> None:
    def use(recorder: Recorder) -> None:
        reader = Reader(recorder, "c", "test")
        poll = reader.poll_invoke()
        for offset in (4, 5):
            reader.record(poll, 2, "safe", 1, offset, b"k", b"v", hw=6)
        reader.poll_end(poll, 2)
        empty = reader.poll_invoke()
        reader.poll_end(empty, 0)
        failed = reader.poll_invoke()
        reader.poll_end(failed, 0, "REQUEST_TIMED_OUT")
        assert recorder.counts.polled == 2

    lines = recorded(tmp_path, use)
    assert [line["type"] for line in lines] == [
        "invoke", "ok", "ok", "invoke", "ok", "invoke", "info",
    ]  # fmt: skip
    assert [line["offset"] for line in lines[1:3]] == [4, 5]
    assert lines[4]["n"] == 0
    assert "partition" not in lines[4]


def test_the_spec_survives_its_file(tmp_path: Path) -> None:
    path = tmp_path / "workload.json"
    path.write_text(json.dumps(asdict(spec(tmp_path))))
    read = read_spec(path)
    assert (read.safe, read.lossy, read.bootstrap) == (SAFE, LOSSY, "127.0.0.1:9092")


def test_error_names_are_kafkas() -> None:
    from kafka import errors

    assert error_name(errors.NotLeaderForPartitionError()) == "NOT_LEADER_OR_FOLLOWER"
    assert error_name(errors.NotEnoughReplicasError()) == "NOT_ENOUGH_REPLICAS"


def test_a_pace_of_zero_grants_nothing() -> None:
    assert not Pace(0).take()
    assert Pace(0).wait() > 0
    busy = Pace(0.1)
    assert busy.take()
    assert not busy.take()
