"""A load whose bytes are the same each time: batches of keyed records, for logs that are compared.

Clients form batches by time, so two clusters given the same records hold different batches, and
roll their segments elsewhere.  Here batches are made beforehand: one is encoded, and each further
one overwrites its keys and values, which costs a tenth of encoding.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from highwater.kafka.client.connection import ClientConnection
from highwater.kafka.client.produce_codec import parse_produce_response, produce_request
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.records import CRC_START, Record, build_batch, crc32c
from highwater.world.chance import seeded
from highwater.world.real.network import RealNetwork

BATCH_RECORDS = 1000
CRC_AT = 17
PRODUCE, VERSION = 0, 7
TIMEOUT_S = 30
START_MS = 1_700_000_000_000


@dataclass(frozen=True, slots=True)
class Keyed:
    """`records` over `keys`, drawn by a seed."""

    records: int
    keys: int
    value_bytes: int = 20
    seed: int = 1

    def choices(self) -> Iterator[list[int]]:
        """The keys of each batch, by number."""
        random = seeded(self.seed)
        left = self.records
        while left > 0:
            count = min(BATCH_RECORDS, left)
            yield [int(random.random() * self.keys) for _ in range(count)]
            left -= count

    def batches(self) -> Iterator[bytearray]:
        """The batches of `choices`; the same bytes every time."""
        count, template = 0, bytearray()
        places: list[int] = []
        for number, keys in enumerate(self.choices()):
            if len(keys) != count:
                count = len(keys)
                template, places = self._template(count)
            batch = bytearray(template)
            for place, key in zip(places, keys, strict=True):
                batch[place : place + 12] = b"key-%08d" % key
            batch[places[0] + 13 : places[0] + 21] = b"%08d" % number
            crc = crc32c(memoryview(batch)[CRC_START:])
            batch[CRC_AT : CRC_AT + 4] = crc.to_bytes(4, "big")
            yield batch

    def _template(self, count: int) -> tuple[bytearray, list[int]]:
        value = b"v" * self.value_bytes
        keys = [b"key-%08d" % n for n in range(count)]
        batch = build_batch([Record(key, value, START_MS) for key in keys])
        places, at = [], 0
        for key in keys:
            at = batch.index(key, at)
            places.append(at)
        return batch, places

    def expected(self, clean_point: int) -> list[int]:
        """The offsets that remain after compaction up to `clean_point`."""
        last: dict[int, int] = {}
        offset = 0
        above: list[int] = []
        for keys in self.choices():
            for key in keys:
                if offset < clean_point:
                    last[key] = offset
                else:
                    above.append(offset)
                offset += 1
        return [*sorted(last.values()), *above]


async def send(host: str, port: int, tp: TopicPartition, load: Keyed) -> None:
    """Produces the whole load to the leader of a partition.  Raises OSError."""
    connection = await ClientConnection.open(RealNetwork(), host, port, "highwater-bench")
    try:
        for batch in load.batches():
            parts = produce_request(1, TIMEOUT_S, [(tp, batch)])
            body = await connection.call_raw(PRODUCE, VERSION, parts, TIMEOUT_S)
            error, _, _ = parse_produce_response(body)[tp]
            if error:
                raise OSError(f"{tp} answered a produce with error {error}")
    finally:
        connection.close()
