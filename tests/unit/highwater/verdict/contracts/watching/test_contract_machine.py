"""The rules of a contract on topics that are being written: what a batch job finds, they tell."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from highwater.verdict.contracts.contract_model import Contract, load
from highwater.verdict.contracts.fields import Record, extract
from highwater.verdict.contracts.watching.machine import ContractMachine, Waits
from highwater.verdict.contracts.watching.row import GRACE_MS, Row
from highwater.verdict.watching.alarm import Alarm
from highwater.verdict.watching.machines import StateDamaged
from tests.planted.contracts import AVRO, PLANTS, READ_MS, Plant, together

Told = set[tuple[str, str | None, int | None, int | None]]


def contract_of(folder: Path, document: object) -> Contract:
    folder.mkdir(exist_ok=True)
    (folder / "order.avsc").write_text(json.dumps(AVRO))
    file = folder / "contract.json"
    file.write_text(json.dumps(document))
    return load(str(file), lambda path: Path(path).read_text())


def row_of(contract: Contract, record: Record) -> Row:
    got = extract(contract.topics[record.topic].looked_for, record)
    return Row(*record[:4], *got)


def told(alarms: list[Alarm]) -> Told:
    return {(a.rule, a.topic, a.partition, a.offset) for a in alarms}


def watched(contract: Contract, records: list[Record], folder: Path, restart: bool) -> Told:
    """One record a batch; with `restart`, each by a machine that begins from the file."""
    machine, found = ContractMachine(contract, Waits()), list[Alarm]()
    for number, record in enumerate(records):
        machine.take([row_of(contract, record)], READ_MS)
        machine.batch = number
        machine.forget()
        found += machine.alarms()
        if restart:
            machine.save(folder / "machine")
            machine = ContractMachine(contract, Waits())
            machine.load(folder / "machine")
            assert machine.batch == number
    machine.advance(READ_MS, [])
    return told(found + machine.alarms())


@pytest.mark.parametrize("restart", [False, True], ids=["", "restarts"])
def test_what_is_planted_is_told_and_nothing_else(tmp_path: Path, restart: bool) -> None:
    contract = contract_of(tmp_path, together())
    records = [record for plant in PLANTS for record in plant.records]
    planted = {
        (rule, topic, partition, offset)
        for plant in PLANTS
        for rule, kind, topic, partition, offset in plant.found
        if kind == "violation"
    }
    assert watched(contract, records, tmp_path, restart) == planted


def test_a_story_is_told_in_the_words_of_the_batch(tmp_path: Path) -> None:
    contract = contract_of(tmp_path, together())
    machine = ContractMachine(contract, Waits())
    machine.take([row_of(contract, r) for p in PLANTS for r in p.records], READ_MS)
    machine.advance(READ_MS, [])
    alarms = machine.alarms()
    for plant in PLANTS:
        for rule, detail in plant.details.items():
            one = next(a for a in alarms if a.rule == rule and a.topic in plant.topics)
            assert one.detail == detail


def pipeline(folder: Path, **more: object) -> tuple[ContractMachine, Contract]:
    plant = Plant("p")
    plant.pipeline("exactly once", **more)
    document = {"topics": plant.topics, "pipelines": plant.pipelines}
    contract = contract_of(folder, document)
    return ContractMachine(contract, Waits(unseen_s=10, horizon_s=20)), contract


def put(machine: ContractMachine, contract: Contract, topic: str, n: int, t: int) -> None:
    record = Record(topic, 0, n, t, b"k", json.dumps({"n": n}).encode(), [])
    machine.take([row_of(contract, record)], t)


def test_a_partition_that_is_behind_holds_the_clock(tmp_path: Path) -> None:
    """A record that has not been read yet is not missing, however long ago it was written."""
    machine, contract = pipeline(tmp_path)
    put(machine, contract, "p-a", 0, 1000)
    machine.advance(900_000, [("p-b", 0)])
    assert not machine.alarms()
    machine.advance(900_000, [])
    assert told(machine.alarms()) == {("K7", "p-a", 0, 0)}


def test_an_output_may_be_read_before_its_input(tmp_path: Path) -> None:
    machine, contract = pipeline(tmp_path)
    put(machine, contract, "p-b", 0, 5000)
    machine.advance(5000 + GRACE_MS - 1, [])
    put(machine, contract, "p-a", 0, 5000)
    machine.advance(5000 + GRACE_MS, [])
    assert not machine.alarms()
    machine.take([row_of(contract, Record("p-b", 0, 7, 9000, b"k", b'{"n": 0}', []))], 9000)
    machine.advance(9000 + GRACE_MS, [])
    assert told(machine.alarms()) == {("K8", "p-b", 0, 7)}


def test_a_gap_that_is_filled_in_time_is_none(tmp_path: Path) -> None:
    topics = {"t": {"sequence": {"json": "$.n"}, "must": "no gap"}}
    contract = contract_of(tmp_path, {"topics": topics})
    machine = ContractMachine(contract, Waits(unseen_s=10, horizon_s=20))
    for offset, number in enumerate((1, 3, 2, 5)):
        t = 1000 + offset
        value = json.dumps({"n": number}).encode()
        machine.take([row_of(contract, Record("t", 0, offset, t, b"k", value, []))], t)
        machine.advance(t, [])
    machine.advance(11_002, [])
    assert not machine.alarms()
    machine.advance(11_003, [])
    assert told(machine.alarms()) == {("K2", "t", 0, 1)}


def test_the_state_does_not_grow(tmp_path: Path) -> None:
    machine, contract = pipeline(tmp_path)
    sizes = []
    for second in range(120):
        for n in range(second * 10, second * 10 + 10):
            put(machine, contract, "p-a", n, second * 1000)
            put(machine, contract, "p-b", n, second * 1000 + 5)
        machine.advance(second * 1000 + 900, [])
        machine.forget()
        sizes.append(machine.save(tmp_path / "machine"))
    assert not machine.alarms()
    assert sizes[-1] < 1.1 * sizes[70], sizes
    assert len(machine.pipelines[0].entries) < 300


def test_the_state_of_another_contract_is_refused(tmp_path: Path) -> None:
    machine, _ = pipeline(tmp_path)
    machine.save(tmp_path / "machine")
    other, _ = pipeline(tmp_path, within_s=3)
    with pytest.raises(StateDamaged, match="is of another contract: name another --state"):
        other.load(tmp_path / "machine")
