"""The parts between the machines and Spark: pieces of the history, the state, the alarms."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from highwater.verdict.watching.alarm import MOST_OF_A_RULE, Alarm, Told
from highwater.verdict.watching.alarms_file import AlarmsFile, read_alarms, told
from highwater.verdict.watching.machines import Machines, Promises, Record, StateDamaged
from highwater.verdict.watching.partition_log import SLACK
from highwater.verdict.watching.pieces import Pieces, end_of, end_of_lines
from highwater.verdict.watching.topic_watch import TopicWatch


def line(process: str, f: str, type_: str, t_ns: int, **fields: object) -> bytes:
    common = {"process": process, "client": "c", "f": f, "type": type_, "t_ns": t_ns}
    return json.dumps({**common, "topic": "orders", "partition": 0, **fields}).encode() + b"\n"


def sent(n: int, offset: int, t_ns: int) -> bytes:
    send = {"op": n, "key": "k", "value": f"v{n}", "acks": -1, "idempotent": True}
    invoke = line("p", "send", "invoke", t_ns, **send)
    return invoke + line("p", "send", "ok", t_ns + 1, offset=offset, **send)


def read(process: str, n: int, offset: int, t_ns: int) -> bytes:
    return line(process, "poll", "ok", t_ns, key="k", value=f"v{n}", offset=offset)


def pieces_of(pieces: Pieces) -> list[bytes]:
    return [path.read_bytes() for path in sorted(pieces.folder.glob("[0-9]*.jsonl"))]


def test_pieces_are_whole_lines_and_go_on_after_a_restart(tmp_path: Path) -> None:
    history = tmp_path / "history.jsonl"
    pieces = Pieces(history, tmp_path / "watch")
    assert not pieces.cut(), "there is no history yet"
    history.write_bytes(b"one\ntwo\nto")
    assert pieces.cut()
    assert not pieces.cut(), "the last line is torn"
    with history.open("ab") as file:
        file.write(b"rn\n")
    again = Pieces(history, tmp_path / "watch")
    assert again.cut()
    assert pieces_of(again) == [b"one\ntwo\n", b"torn\n"]
    for path in again.folder.iterdir():
        path.unlink()  # the stream has done with them
    third = Pieces(history, tmp_path / "watch")
    assert third.position == end_of_lines(history) == 13
    assert not third.cut()


def test_a_piece_that_was_made_when_its_maker_died_is_not_made_again(tmp_path: Path) -> None:
    history = tmp_path / "history.jsonl"
    history.write_bytes(b"one\n")
    pieces = Pieces(history, tmp_path / "watch")
    pieces.cut()
    (tmp_path / "watch" / "position").unlink()  # it died before it wrote the position
    assert Pieces(history, tmp_path / "watch").position == 4
    assert end_of("/x/000000000000000-000000000000004.jsonl") == 4


def test_a_restart_with_the_same_state_tells_nothing_twice(tmp_path: Path) -> None:
    machines = Machines(Promises())
    machines.take_lines([sent(0, 0, 10) + read("c", 0, 0, 20) + read("c", 0, 1, 30)], 0)
    machines.batches["history"] = 3
    alarms = AlarmsFile(tmp_path / "alarms.jsonl")
    (alarm,) = machines.alarms()
    assert alarm.rule == "C2"
    assert alarms.add(alarm.as_json()) is not None
    machines.save(tmp_path / "machines")

    again = Machines(Promises())
    again.load(tmp_path / "machines")
    assert again.batches == {"history": 3}
    again.take_lines([sent(1, 2, 40) + read("c", 1, 2, 50)], 0)
    assert again.alarms() == []

    with alarms.path.open("a") as file:
        file.write('{"id": "torn')
    assert AlarmsFile(alarms.path).add(alarm.as_json()) is None, "the batch was computed again"
    assert [a["rule"] for a in read_alarms(alarms.path)] == ["C2"]
    assert told(read_alarms(alarms.path)[0]).startswith("C2 orders-0 offset 1: stands at offsets")


def test_a_state_that_is_torn_is_refused_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "machines").write_bytes(b"\x80\x05torn")
    with pytest.raises(StateDamaged, match="remove"):
        Machines(Promises()).load(tmp_path / "machines")


def test_lines_that_are_no_json_are_counted_and_left_out() -> None:
    machines = Machines(Promises())
    machines.take_lines([b"{oops\n[1]\n\n" + sent(0, 0, 10)], 0)
    assert (machines.lines, machines.bad_lines) == (2, 2)


def test_unseen_is_told_when_its_time_has_come_and_not_before() -> None:
    machines = Machines(Promises(unseen_s=5))
    machines.take_lines([sent(0, 0, 10) + sent(1, 1, 20) + read("c", 0, 0, 30)], 1000)
    machines.due(5999)
    assert machines.alarms() == []
    machines.due(6000)
    (alarm,) = machines.alarms()
    assert (alarm.rule, alarm.offset) == ("C4", 1)


def test_the_independent_reader_finds_what_is_not_there() -> None:
    machines = Machines(Promises())
    lines = [sent(n, n, 10 * n + 1) for n in range(3)]
    machines.take_lines([b"".join(lines), read("c", 0, 0, 50), read("c", 1, 1, 60)], 0)
    found = [Record("orders", 0, n, b"k", f"v{n}".encode(), 0) for n in (0, 2)]
    machines.take_records(found, 0)
    assert [(a.rule, a.offset) for a in machines.alarms()] == [("C15", 1)]


def test_a_record_that_comes_before_its_send_is_no_phantom() -> None:
    machines = Machines(Promises(unseen_s=5))
    machines.take_lines([sent(0, 0, 1)], 0)
    machines.take_records([Record("orders", 0, 1, b"k", b"v1", 0)], 0)
    machines.take_lines([sent(1, 1, 10)], 4000)
    machines.due(9000)
    assert {a.rule for a in machines.alarms()} == {"C4"}, "offset 0 was not read"


@pytest.mark.thorough
def test_the_state_is_bounded_by_the_horizon() -> None:
    watch = TopicWatch("orders", horizon_s=1, unseen_s=1)
    sizes = []
    for n in range(3 * SLACK):
        for raw in (sent(n, n, n * 1_000_000), read("c", n, n, n * 1_000_000 + 2)):
            for one in raw.splitlines():
                watch.line(json.loads(one), n)
        if n % 1000 == 0:
            watch.forget()
            sizes.append(len(watch.dump()))
    assert watch.told.take() == []
    assert max(sizes[-10:]) < 1.1 * max(sizes[15:20])


def test_a_rule_that_is_broken_again_and_again_is_told_twenty_times() -> None:
    told_ = Told()
    for n in range(100):
        told_.tell(Alarm(rule="C2", topic="orders", detail="x", offset=n))
    assert len(told_.take()) == MOST_OF_A_RULE
    assert told_.counts == {"C2": 100}
