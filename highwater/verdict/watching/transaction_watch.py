"""All transactions while a run goes on: torn reads, aborted reads, money, zombies.

The machine gets, in the order of their times, the history's lines that name a transaction, and
those of reads under read_committed.  Pure: `now_ms` is the time of the batch.

    T3   a read under read_committed shows a record before its transaction's commit was requested,
         or leaves out a record of a committed transaction; or part of a transaction is shown, and
         the rest does not follow within N seconds
    T4   what is shown of a transaction that moves money does not sum to zero; or a producer
         committed although another one had taken over its transactional id
    C6   a read under read_committed shows a record of a transaction that was aborted
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field
from typing import Any, Final

from highwater.verdict.watching.alarm import Alarm, Told
from highwater.verdict.watching.partition_log import digest

VERSION: Final = 1
COMMITTED: Final = "read_committed"
MOST_SKIPPED: Final = 10_000
"""How many of the offsets that one step of a reader leaves out are examined."""
Place = tuple[str, int, int]
"""(topic, partition, offset)"""


@dataclass(slots=True)
class Transaction:
    process: str = ""
    commit_ns: int | None = None
    """When the commit was requested for the first time."""
    fate: str = "open"
    """open, committed, aborted, unknown"""
    last_ns: int = 0
    acked: dict[Place, int] = field(default_factory=dict)
    """The places of its records -> the amounts that they move."""
    shown: dict[Place, int] = field(default_factory=dict)
    """The places of its records, and of others with its values, that a reader under read_committed
    was given -> the amounts."""
    left_out: dict[Place, str] = field(default_factory=dict)
    """Places that a reader went past -> the reader."""
    money: bool = False
    due_ms: int | None = None
    """When the whole transaction must have been shown."""


class TransactionWatch:
    def __init__(self, *, unseen_s: float = 60.0, horizon_s: float = 60.0) -> None:
        self.unseen_ms = int(unseen_s * 1000)
        self.horizon_ns = 2 * int(max(horizon_s, unseen_s) * 1e9)
        self.now_ns = 0
        self.now_ms = 0
        self.told = Told()
        self.transactions: dict[str, Transaction] = {}
        self.sends: dict[int, tuple[str, int, str, int | None]] = {}
        """Hash of topic and content -> (transaction, amount, topic, partition)."""
        self.placed: dict[tuple[str, int], dict[int, str]] = {}
        """(Topic, partition) -> offset -> transaction."""
        self.readers: dict[tuple[str, str, int], tuple[int, int]] = {}
        """(Process, topic, partition) -> (the offset it read last, when)."""
        self.owners: dict[str, list[tuple[int, str]]] = {}
        """Transactional id -> the last few (when it was taken over, by which process)."""

    def line(self, line: Mapping[str, Any], now_ms: int) -> None:
        self.now_ms = now_ms
        self.now_ns = max(self.now_ns, int(line["t_ns"]))
        f, type_ = line["f"], line["type"]
        if f == "send":
            self._send(line, type_)
        elif f == "end_txn" and line.get("txn"):
            self._end(line, type_)
        elif f == "init_txn" and type_ == "ok":
            owners = self.owners.setdefault(line.get("transactional_id", ""), [])
            owners.append((int(line["t_ns"]), line["process"]))
            del owners[:-50]
        elif f == "assign" and line.get("partition") is not None:
            self.readers.pop((line["process"], line["topic"], line["partition"]), None)
        elif _is_read(line):
            self._read(line)

    def _send(self, line: Mapping[str, Any], type_: str) -> None:
        topic, t_ns = line["topic"], int(line["t_ns"])
        hash_ = digest(f"{topic}\0{line.get('value')}")
        if type_ == "invoke":
            amount = line.get("amount")
            self.sends[hash_] = (line["txn"], int(amount or 0), topic, line.get("partition"))
            txn = self.transactions.setdefault(line["txn"], Transaction(line["process"]))
            txn.money = txn.money or amount is not None
            txn.last_ns = t_ns
            return
        offset = line.get("offset")
        if type_ != "ok" or hash_ not in self.sends or offset is None or offset < 0:
            return
        name, amount, _, asked = self.sends[hash_]
        partition = int(line.get("partition", asked if asked is not None else -1))
        txn = self.transactions[name]
        txn.acked[topic, partition, offset] = amount
        txn.last_ns = t_ns
        self.placed.setdefault((topic, partition), {})[offset] = name

    def _end(self, line: Mapping[str, Any], type_: str) -> None:
        name, t_ns = line["txn"], int(line["t_ns"])
        txn = self.transactions.setdefault(name, Transaction(line["process"]))
        txn.last_ns = t_ns
        commit = line.get("which") == "commit"
        if type_ == "invoke":
            if commit and txn.commit_ns is None:
                txn.commit_ns = t_ns
        elif type_ == "ok" and commit:
            txn.fate = "committed"
            self._committed(name, txn, line)
        elif type_ == "ok":
            txn.fate = "aborted" if txn.commit_ns is None else "unknown"
        elif type_ == "fail" and commit:
            txn.fate = "aborted"
        else:
            txn.fate = "unknown"

    def _committed(self, name: str, txn: Transaction, line: Mapping[str, Any]) -> None:
        t_ns = int(line["t_ns"])
        for place, reader in txn.left_out.items():
            detail = f"{name} was committed, and {reader} went past this record of it"
            self._tell("T3", detail, place, t_ns=t_ns, process=reader)
        txn.left_out.clear()
        if txn.shown:
            self._balance(name, txn, t_ns)
        owners = self.owners.get(line.get("transactional_id", ""), [])
        since = [t for t, process in owners if process == line["process"]]
        if not since or not txn.acked or txn.commit_ns is None:
            return
        for t, other in owners:
            if other != line["process"] and since[0] < t < txn.commit_ns:
                detail = (
                    f"{line['process']} committed {name}, although {other} had taken over"
                    f" {line.get('transactional_id')} before it asked"
                )
                self._tell("T4", detail, None, t_ns=t_ns, process=line["process"])
                return

    def _read(self, line: Mapping[str, Any]) -> None:
        topic, partition, offset = line["topic"], int(line["partition"]), int(line["offset"])
        process, t_ns = line["process"], int(line["t_ns"])
        reader = (process, topic, partition)
        if (before := self.readers.get(reader)) is not None and before[0] < offset:
            self._left_out(topic, partition, before[0], offset, process, t_ns)
        self.readers[reader] = (offset, t_ns)
        hash_ = digest(f"{topic}\0{line.get('value')}")
        if hash_ not in self.sends:
            return
        name, amount, *_ = self.sends[hash_]
        txn = self.transactions[name]
        place = (topic, partition, offset)
        if place in txn.shown:
            return
        when: dict[str, Any] = {"t_ns": t_ns, "process": process}
        if txn.fate == "aborted":
            detail = f"was read by {process} under read_committed, although {name} was aborted"
            self._tell("C6", detail, place, **when)
        elif txn.commit_ns is None or t_ns < txn.commit_ns:
            detail = (
                f"was read by {process} under read_committed,"
                f" and the commit of {name} was not asked for yet"
            )
            self._tell("T3", detail, place, **when)
        txn.shown[place] = amount
        txn.last_ns = max(txn.last_ns, t_ns)
        if txn.fate == "aborted":
            return
        if txn.due_ms is None:
            txn.due_ms = self.now_ms + self.unseen_ms
        if txn.fate == "committed":
            self._balance(name, txn, t_ns)

    def _left_out(
        self, topic: str, partition: int, last: int, offset: int, process: str, t_ns: int
    ) -> None:
        """A reader under read_committed may skip only records of aborted transactions."""
        placed = self.placed.get((topic, partition), {})
        for skipped in range(max(last + 1, offset - MOST_SKIPPED), offset):
            if (name := placed.get(skipped)) is None:
                continue
            txn, place = self.transactions[name], (topic, partition, skipped)
            if txn.fate == "committed":
                detail = f"{name} was committed, and {process} read {last}, then {offset}"
                self._tell("T3", detail, place, t_ns=t_ns, process=process)
            elif txn.fate != "aborted" and txn.commit_ns is not None:
                txn.left_out[place] = process

    def _balance(self, name: str, txn: Transaction, t_ns: int) -> None:
        """Raises an alarm if a transaction is shown whole and its amounts do not sum to zero."""
        if not txn.shown.keys() >= txn.acked.keys():
            return
        txn.due_ms = None
        total = sum(txn.shown.values())
        if txn.money and total:
            detail = f"what is shown of {name} sums to {total}, not to zero"
            self._tell("T4", detail, next(iter(txn.shown)), t_ns=t_ns)

    def due(self, now_ms: int) -> None:
        """Raises the alarms whose time has come."""
        self.now_ms = now_ms
        for name, txn in self.transactions.items():
            if txn.due_ms is not None and txn.due_ms <= now_ms:
                txn.due_ms = None
                self._torn(name, txn)

    def forget(self) -> None:
        """Forgets everything older than the horizon."""
        old = self.now_ns - self.horizon_ns
        of = self.transactions
        names = {name for name in of if of[name].last_ns < old and of[name].due_ms is None}
        if names:
            self._forget(names)
        for reader in [r for r, (_, t_ns) in self.readers.items() if t_ns < old]:
            del self.readers[reader]

    def _torn(self, name: str, txn: Transaction) -> None:
        """Raises an alarm for a transaction of which only a part was shown in time."""
        missing = next((place for place in txn.acked if place not in txn.shown), None)
        if missing is None:
            self._balance(name, txn, txn.last_ns)
            return
        shown = len(txn.acked.keys() & txn.shown.keys())
        detail = (
            f"{name} is torn: of {len(txn.acked)} records {shown} were shown"
            f" after {self.unseen_ms / 1000:g} s"
        )
        self._tell("T3", detail, missing, t_ns=txn.last_ns)

    def _forget(self, names: set[str]) -> None:
        for name in names:
            for topic, partition, offset in self.transactions.pop(name).acked:
                self.placed[topic, partition].pop(offset, None)
        self.sends = {h: send for h, send in self.sends.items() if send[0] not in names}

    def _tell(self, rule: str, detail: str, place: Place | None, **more: Any) -> None:
        topic, partition, offset = place if place is not None else (None, None, None)
        self.told.tell(
            Alarm(rule=rule, topic=topic, detail=detail, partition=partition, offset=offset, **more)
        )

    def dump(self) -> bytes:
        state = (
            VERSION,
            self.now_ns,
            self.told.counts,
            {name: astuple(txn) for name, txn in self.transactions.items()},
            self.sends,
            self.placed,
            self.readers,
            self.owners,
        )
        return pickle.dumps(state, protocol=5)

    def load(self, data: bytes) -> None:
        version, *state = pickle.loads(data)
        if version != VERSION:
            raise ValueError(f"the checkpoint is of version {version}: begin with a new one")
        self.now_ns, counts, transactions, *rest = state
        self.told = Told(counts)
        self.transactions = {name: Transaction(*fields) for name, fields in transactions.items()}
        self.sends, self.placed, self.readers, self.owners = rest


def _is_read(line: Mapping[str, Any]) -> bool:
    """Whether a line is a record that was read under read_committed."""
    read = line["f"] == "poll" and line["type"] == "ok" and line.get("offset", -1) >= 0
    return read and line.get("isolation") == COMMITTED
