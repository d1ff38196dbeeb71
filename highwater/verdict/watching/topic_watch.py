"""One topic while a run goes on: duplicates, order, vanished reads, losses.

The machine gets the history's lines of its topic in the order of their times, and the records that
an independent reader found (under read_uncommitted, each partition in the order of its offsets).
It keeps what is newer than the horizon, and says nothing about anything older: an alarm may come
late or never, but not wrongly.  Pure: `now_ms` is the time of the batch.

    C1   two witnesses disagree about an offset        C10  order of a producer's sends
    C2   a value is at two offsets                     C11  real-time order
    C3   a reader went past an acknowledged record     C12  one offset was acknowledged twice
    C4   acknowledged, and unseen for N seconds        C15  was read, and the independent reader
    C6   read, although its send failed                     does not find it
    C7   read, and no client sent it (after N seconds)
    C8   a consumer left out what another one read     C9   a consumer went back
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any, Final

from highwater.verdict.watching.alarm import Alarm, Told
from highwater.verdict.watching.partition_log import (
    ACKED,
    CAUGHT,
    PASSED,
    PASSED_BY_READER,
    READ,
    SEEN,
    STRICT,
    PartitionLog,
    digest,
    key_digest,
)
from highwater.verdict.watching.sends import Acknowledged, Order, Send, Sends

VERSION: Final = 1
READER: Final = "the independent reader"
PLACELESS_HORIZONS: Final = 10
"""For how many horizons a send of unknown outcome is kept."""


class TopicWatch:
    def __init__(
        self,
        topic: str,
        *,
        unseen_s: float = 60.0,
        horizon_s: float = 60.0,
        unclean: bool = False,
        compacted: bool = False,
    ) -> None:
        """`unclean`: unclean elections are allowed, so no acknowledgement binds; `compacted`:
        records may be gone rightly."""
        self.topic = topic
        self.unseen_ms = int(unseen_s * 1000)
        self.horizon_ns = int(horizon_s * 1e9)
        self.unclean = unclean
        self.holes = unclean or compacted
        self.now_ns = 0
        self.now_ms = 0
        self.told = Told()
        self.sends = Sends()
        self.logs: dict[int, PartitionLog] = {}
        self.acknowledged: dict[int, Acknowledged] = {}
        self.orders: dict[tuple[str, int], Order] = {}
        self.consumers: dict[tuple[str, int], tuple[int, int]] = {}
        """(Process, partition) -> (offset that it read last, when)."""
        self.reader: dict[int, int] = {}
        self.unseen: dict[tuple[int, int], tuple[int, int, str]] = {}
        """(Partition, offset) of an acknowledged record -> (deadline in ms, t_ns, process)."""
        self.strangers: dict[int, tuple[int, int, int, str, int | None]] = {}
        """Hash of a value read, not sent -> (deadline, partition, offset, process, t_ns)."""

    # --- what comes in

    def line(self, line: Mapping[str, Any], now_ms: int) -> None:
        """One line of the history."""
        self.now_ms = now_ms
        self.now_ns = max(self.now_ns, int(line["t_ns"]))
        f, type_ = line["f"], line["type"]
        if f == "send":
            if type_ == "invoke":
                self._invoke(line)
            else:
                self._end(line, type_)
        elif f == "poll" and type_ == "ok" and line.get("offset", -1) >= 0:
            self._poll(line)
        elif f == "assign" and line.get("partition") is not None:
            self.consumers.pop((line["process"], line["partition"]), None)

    def record(
        self,
        partition: int,
        offset: int,
        key: str | None,
        value: str | None,
        t_ms: int,
        now_ms: int,
    ) -> None:
        """One record that the independent reader found; `t_ms`: its timestamp."""
        self.now_ms = now_ms
        last = self.reader.get(partition, -1)
        if offset <= last:
            return  # it is read a second time, after a restart
        self.reader[partition] = offset
        log = self.logs.setdefault(partition, PartitionLog())
        if last >= 0:
            self._left_out(log, partition, last, offset, READER, {"t_ms": t_ms})
        what = (digest(value), key_digest(key))
        self._seen(log, partition, offset, what, CAUGHT, READER, {"t_ms": t_ms})

    def due(self, now_ms: int) -> None:
        """Raises the alarms whose time has come."""
        self.now_ms = now_ms
        for place in [place for place, what in self.unseen.items() if what[0] <= now_ms]:
            _, t_ns, process = self.unseen.pop(place)
            seconds = f"{self.unseen_ms / 1000:g} s"
            detail = f"was acknowledged to {process}, and no reader has seen it for {seconds}"
            self._tell("C4", detail, *place, t_ns=t_ns, process=process)
        for hash_ in [hash_ for hash_, what in self.strangers.items() if what[0] <= now_ms]:
            _, partition, offset, process, when = self.strangers.pop(hash_)
            if self.sends.count and not self.sends.forgot:
                detail = f"was read by {process}, but nobody sent it"
                self._tell("C7", detail, partition, offset, t_ns=when, process=process)

    # --- sends

    def _invoke(self, line: Mapping[str, Any]) -> None:
        hash_ = digest(line.get("value"))
        partition, t_ns = line.get("partition"), int(line["t_ns"])
        acked = self.acknowledged.get(partition) if partition is not None else None
        send = Send(
            hash=hash_,
            process=line["process"],
            place=self.sends.count,
            started_ns=t_ns,
            client=line.get("client", ""),
            idempotent=bool(line.get("idempotent")),
            in_order=bool(line.get("idempotent")) or line.get("max_in_flight") == 1,
            partition=partition,
            known=acked.before(t_ns) if acked is not None and not line.get("expect_loss") else -1,
            key=key_digest(line.get("key")),
        )
        for log in self.logs.values():
            if hash_ in log.place_of:
                send.repeated = hash_ not in self.strangers
                log.flags[log.place_of[hash_] - (log.base or 0)] &= ~STRICT
        self.strangers.pop(hash_, None)
        self.sends.begin(int(line["op"]), send)

    def _end(self, line: Mapping[str, Any], type_: str) -> None:
        send = self.sends.end(int(line["op"]), digest(line.get("value")))
        if send is None:
            return  # the send began before the horizon
        t_ns = int(line["t_ns"])
        offset = line.get("offset")
        partition = line.get("partition", send.partition)
        binding = line.get("acks", -1) == -1 and not line.get("expect_loss") and not self.unclean
        if type_ != "ok" or offset is None or offset < 0 or partition is None or not binding:
            self.sends.keep(send, t_ns, failed=type_ == "fail")
            return
        log = self.logs.setdefault(partition, PartitionLog())
        self._acked(log, partition, offset, send, t_ns)

    def _acked(self, log: PartitionLog, partition: int, offset: int, send: Send, t_ns: int) -> None:
        when = {"t_ns": t_ns, "process": send.process}
        self._as_sent(send, partition, offset, when)
        self.acknowledged.setdefault(partition, Acknowledged()).add(t_ns, offset)
        if send.in_order and not send.repeated:
            order = self.orders.setdefault((send.process, partition), Order())
            if (wrong := order.add(send.place, offset, t_ns)) is not None:
                detail = f"{send.process} sent what is at {wrong[1]} before what is at {wrong[0]}"
                self._tell("C10", detail, partition, offset, **when)
        if not log.holds(offset):
            return
        what = (send.hash, send.key)
        self._placed(log, partition, offset, what, ACKED, send.process, when)
        at = log.index(offset)
        if send.strict:
            log.flags[at] |= STRICT
        flags = log.flags[at]
        if flags & SEEN or self.holes or log.place_of.get(send.hash) != offset:
            return
        if flags & (PASSED | PASSED_BY_READER):
            who = READER if flags & PASSED_BY_READER else "a reader"
            detail = f"was acknowledged to {send.process}, and {who} went past it"
            self._tell("C3", detail, partition, offset, **when)
        else:
            self.unseen[partition, offset] = (self.now_ms + self.unseen_ms, t_ns, send.process)

    def _as_sent(self, send: Send, partition: int, offset: int, when: dict[str, Any]) -> None:
        """A record's place is known: checks that its producer requested this partition, and that
        the offset is behind all those acknowledged before the send."""
        if send.partition is None or send.repeated:
            return
        if partition != send.partition:
            detail = f"was sent to partition {send.partition}"
            self._tell("C7", detail, partition, offset, **when)
        elif offset <= send.known:
            detail = f"{send.process} sent it after offset {send.known} had been acknowledged"
            self._tell("C11", detail, partition, offset, **when)

    # --- reads

    def _poll(self, line: Mapping[str, Any]) -> None:
        process, partition, offset = line["process"], int(line["partition"]), int(line["offset"])
        when = {"t_ns": int(line["t_ns"]), "process": process}
        log = self.logs.setdefault(partition, PartitionLog())
        place = (process, partition)
        if (before := self.consumers.get(place)) is not None:
            last = before[0]
            if offset <= last:
                detail = f"{process} read offset {last}, then {offset}"
                self._tell("C9", detail, partition, offset, **when)
            elif line.get("isolation") != "read_committed":
                self._left_out(log, partition, last, offset, process, when)
        self.consumers[place] = (offset, int(line["t_ns"]))
        what = (digest(line.get("value")), key_digest(line.get("key")))
        self._seen(log, partition, offset, what, READ, process, when)

    def _seen(
        self,
        log: PartitionLog,
        partition: int,
        offset: int,
        what: tuple[int, int],
        flag: int,
        process: str,
        when: dict[str, Any],
    ) -> None:
        self.unseen.pop((partition, offset), None)
        if not log.holds(offset):
            return
        hash_ = what[0]
        known = hash_ in log.place_of
        self._placed(log, partition, offset, what, flag, process, when)
        flags = log.flags_at(offset) & (SEEN | PASSED_BY_READER)
        if flag == READ and not self.holes and flags == READ | PASSED_BY_READER:
            detail = f"was read by {process}, and {READER} did not find it"
            self._tell("C15", detail, partition, offset, **when)
        if (failed := self.sends.failed(hash_)) is not None:
            detail = f"was read by {process}, although the attempt of {failed.process} failed"
            self._tell("C6", detail, partition, offset, **when)
        elif known:
            return
        elif (send := self.sends.of(hash_)) is not None:
            self._as_sent(send, partition, offset, when)
        elif others := [p for p, o in self.logs.items() if p != partition and o.acked(hash_)]:
            detail = f"was acknowledged in partition {others[0]}"
            self._tell("C7", detail, partition, offset, **when)
        else:
            deadline = self.now_ms + self.unseen_ms
            t_ns = when.get("t_ns")
            self.strangers.setdefault(hash_, (deadline, partition, offset, process, t_ns))

    def _placed(
        self,
        log: PartitionLog,
        partition: int,
        offset: int,
        what: tuple[int, int],
        flag: int,
        process: str,
        when: dict[str, Any],
    ) -> None:
        """A witness has seen a value and its key, given by their digests, at `offset`."""
        hash_, key = what
        at = log.index(offset)
        there, flags = log.hashes[at], log.flags[at]
        log.flags[at] = flags | flag
        if there and there != hash_ and not self.unclean:
            both = flag == ACKED and flags & ACKED and not flags & SEEN
            detail = (
                f"was acknowledged to {process}, and for another value before"
                if both
                else f"{process} {'was acknowledged' if flag == ACKED else 'read'} another value"
                f" there than {'a reader saw' if flags & SEEN else 'was acknowledged'}"
            )
            self._tell("C12" if both else "C1", detail, partition, offset, **when)
            return
        if there and log.keys[at] != key:
            detail = f"{process} saw it with another key than another witness"
            self._tell("C7", detail, partition, offset, **when)
        log.hashes[at], log.keys[at] = hash_, key
        first = log.place_of.setdefault(hash_, offset)
        if first == offset:
            return
        send = self.sends.of(hash_)
        strict = log.flags_at(first) & STRICT or (send is not None and send.strict)
        if strict and not self.unclean:
            detail = f"stands at offsets {min(first, offset)} and {max(first, offset)}"
            self._tell("C2", detail, partition, offset, **when)

    def _left_out(
        self,
        log: PartitionLog,
        partition: int,
        last: int,
        offset: int,
        who: str,
        when: dict[str, Any],
    ) -> None:
        """`who` read `last` and then `offset`: checks that no existing record lies between."""
        if self.holes or log.base is None:
            return
        when = {"process": who, **when}
        for skipped in range(max(last + 1, log.base), offset):
            at = log.index(skipped)
            flags = log.flags[at]
            log.flags[at] |= PASSED_BY_READER if who == READER else PASSED
            if flags & SEEN:
                rule = "C15" if who == READER else "C8"
                detail = f"was read, and {who} read {last}, then {offset}"
            elif flags & ACKED:
                rule = "C3"
                detail = f"was acknowledged, and {who} read {last}, then {offset}"
                self.unseen.pop((partition, skipped), None)
            else:
                continue
            self._tell(rule, detail, partition, skipped, **when)

    # --- what is kept

    def forget(self) -> None:
        """Forgets everything older than the horizon."""
        now_ns = self.now_ns or self.now_ms * 1_000_000
        for log in self.logs.values():
            log.mark(now_ns, self.horizon_ns)
        self.sends.forget(now_ns - PLACELESS_HORIZONS * self.horizon_ns)
        old = now_ns - PLACELESS_HORIZONS * self.horizon_ns
        for place in [p for p, order in self.orders.items() if order.used_ns < old]:
            del self.orders[place]
        for place in [p for p, (_, t_ns) in self.consumers.items() if t_ns < old]:
            del self.consumers[place]

    def _tell(
        self, rule: str, detail: str, partition: int | None, offset: int | None, **more: Any
    ) -> None:
        self.told.tell(
            Alarm(
                rule=rule,
                topic=self.topic,
                detail=detail,
                partition=partition,
                offset=offset,
                **more,
            )
        )

    def dump(self) -> bytes:
        """The whole state; only `load` of the same version reads it."""
        state = (
            VERSION,
            self.now_ns,
            self.told.counts,
            self.sends.dump(),
            {p: log.dump() for p, log in self.logs.items()},
            {p: (a.times, a.highest) for p, a in self.acknowledged.items()},
            {p: (o.pairs, o.used_ns) for p, o in self.orders.items()},
            self.consumers,
            self.reader,
            self.unseen,
            self.strangers,
        )
        return pickle.dumps(state, protocol=5)

    def load(self, data: bytes) -> None:
        version, *state = pickle.loads(data)
        if version != VERSION:
            raise ValueError(f"the checkpoint is of version {version}: begin with a new one")
        self.now_ns, counts, sends, logs, acknowledged, orders, *rest = state
        self.told = Told(counts)
        self.sends = Sends.load(sends)
        self.logs = {p: PartitionLog.load(log) for p, log in logs.items()}
        self.acknowledged = {p: Acknowledged(*a) for p, a in acknowledged.items()}
        self.orders = {p: Order(*o) for p, o in orders.items()}
        self.consumers, self.reader, self.unseen, self.strangers = rest
