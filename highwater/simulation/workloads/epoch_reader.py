"""A consumer that names the leader epoch of the last record that it read (KIP-595, Fetch v12).

Where its records and the leader's log have parted, the answer names the epoch and offset where that
was, and the reader drops what it holds from there on, as a follower would, and reads on.  So what
it holds must always be the beginning of one log, although records that were committed may be lost:
by an unclean election, or a careless power loss.

* C1, C15: in the end it holds, offset for offset, what the last read of the partition finds.
* C8, C9, C14: an answer begins with the position that was asked for, and has no gap; epochs do not
  fall.
* C15: it is told to go back, or that it is out of range, only to where records were given up.
* L1: who is told to go back goes back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from highwater.kafka.wire.records import records_of
from highwater.simulation.rules.mirror import parse
from highwater.simulation.workloads.part import Part, Shared, Works
from highwater.simulation.workloads.plain_client import Failed, SimClient
from highwater.simulation.workloads.plain_topics import LOSSY, SAFE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from highwater.kafka.types import TopicPartition


class Held(NamedTuple):
    """A record that was read."""

    epoch: int
    value: bytes


class EpochReader(Part):
    """Reads partitions from offset 0 on."""

    needs = ("unclean", "power_loss")

    def __post_init__(self) -> None:
        self.held: dict[TopicPartition, list[Held]] = {}
        """Partition -> its records, the first of them at offset 0."""

    def clients(self) -> Works:
        return {"epochs": self.consume}

    async def consume(self, client: SimClient) -> None:
        """Reads the plain topics until cancelled."""
        plain = [tp for tp in self.rules.partitions if tp.topic in (SAFE, LOSSY)]
        tps = sorted(plain, key=lambda tp: (tp.topic == LOSSY, tp))
        while True:
            for tp in tps:
                await self.poll(client, tp)
            await client.pause(0.05 / self.pace, 0.2 / self.pace)

    async def poll(self, client: SimClient, tp: TopicPartition) -> bool:
        """One fetch; whether the leader's log goes on with what is held."""
        held = self.held.setdefault(tp, [])
        try:
            got = await client.fetch_decoded(
                tp, len(held), version=12, last_epoch=held[-1].epoch if held else -1
            )
        except Failed as failed:
            self.errors[failed.name] += 1
            client.forget(tp)
            if failed.name == "OFFSET_OUT_OF_RANGE":
                self.count["epochs: out of range"] += 1
                self._drop(tp, 0, "is out of range")
            await client.pause()
            return False
        diverging = got.diverging_epoch
        if diverging is not None and diverging.epoch >= 0:
            self.went_back(tp, diverging.epoch, diverging.end_offset)
            return False
        self.taken(tp, bytes(got.records or b""))
        return True

    def taken(self, tp: TopicPartition, data: bytes) -> None:
        """Takes the records of an answer."""
        held = self.held.setdefault(tp, [])
        batches, _ = parse(data)
        asked = at = len(held)
        last_epoch = held[-1].epoch if held else -1
        for batch in batches:
            if batch.base > at:
                self.rules.broken("C8", f"{tp}@{asked}: {batch} comes where {at} was to come")
            if batch.last < at or (batch.base < at and at > asked):
                self.rules.broken("C9", f"{tp}@{asked}: {batch} comes where {at} was to come")
            if batch.epoch < last_epoch:
                self.rules.broken("C14", f"{tp}@{asked}: {batch} comes after epoch {last_epoch}")
            at, last_epoch = batch.last + 1, batch.epoch
        epochs = {n: batch.epoch for batch in batches for n in range(batch.base, batch.last + 1)}
        for record in records_of(data):
            if record.offset >= asked:
                held.append(Held(epochs[record.offset], record.value or b""))
        self.count["epochs: read"] += len(held) - asked

    def went_back(self, tp: TopicPartition, epoch: int, end: int) -> None:
        """Goes back to the end of this epoch: the leader's end of it, or its own."""
        held = self.held[tp]
        keep = min(end, len(held))
        while keep > 0 and held[keep - 1].epoch > epoch:
            keep -= 1
        self.count["epochs: went back"] += 1
        if keep == len(held):
            what = f"epoch {epoch} ends at {end}, which parts from no record"
            self.rules.broken("L1", f"{tp}: {what} of a reader at {len(held)}")
        self._drop(tp, keep, f"parted at {end} of epoch {epoch}")

    def _drop(self, tp: TopicPartition, keep: int, why: str) -> None:
        held = self.held[tp]
        truth = self.rules.partitions.get(tp)
        lost = truth is not None and any(
            start < len(held) and keep < end for start, end in truth.given_up
        )
        if not lost:
            self.rules.broken(
                "C15", f"{tp}: a reader at {len(held)} {why}, and goes back to {keep}; "
                "no record there was lost"
            )  # fmt: skip
        self.count["epochs: dropped"] += len(held) - keep
        del held[keep:]

    async def look(self, shared: Shared) -> None:
        """Reads to the end that the last read found, and compares with it."""
        client, final = shared.client(SimClient, "last-epochs"), shared.history.final
        for tp in self.held:
            found = {offset: value for (of, offset), value in final.items() if of == tp}
            while not await self.poll(client, tp) or len(self.held[tp]) <= max(found, default=-1):
                pass
            self.compare(tp, found)

    def compare(self, tp: TopicPartition, found: Mapping[int, bytes]) -> None:
        """`found`: offset -> value, of the last read."""
        for offset, (epoch, value) in enumerate(self.held[tp]):
            if offset > max(found, default=-1):
                break  # its sender was ended with the run, and it came late
            if offset not in found:
                self.rules.broken("C15", f"{tp}@{offset} {value!r} is held, and is gone")
            elif found[offset] != value:
                self.rules.broken(
                    "C1", f"{tp}@{offset}: held is {value!r} of epoch {epoch}, there is "
                    f"{found[offset]!r}"
                )  # fmt: skip
