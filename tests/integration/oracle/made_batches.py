"""Produce requests whose batches are wrong, or odd, in one or two places, made by a seed.

A good batch is taken apart into its records, its payload and its header; `DAMAGES` has each way to
change one of them, with values around the field's bounds.  Lengths and the CRC are right again
unless they are what is changed.  `DECLARED` has the deliberate differences, which
docs/differences.md explains.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from struct import pack

from highwater.broker.log.validation import CODECS
from highwater.kafka.errors import ApiError
from highwater.kafka.wire.compression import Compression, compress
from highwater.kafka.wire.record_codec import encode_varint, read_varint
from highwater.kafka.wire.records import crc32c

HOUR = 3_600_000
CONFIGS: dict[str, dict[str, str]] = {
    "plain": {},
    "compact": {"cleanup.policy": "compact"},
    "append-time": {"message.timestamp.type": "LogAppendTime"},
    "limits": {
        "message.timestamp.before.max.ms": str(HOUR),
        "message.timestamp.after.max.ms": str(HOUR),
    },
    "uncompressed": {"compression.type": "uncompressed"},
    "gzip": {"compression.type": "gzip"},
    "snappy": {"compression.type": "snappy"},
    "lz4": {"compression.type": "lz4"},
    "zstd": {"compression.type": "zstd"},
    "small": {"max.message.bytes": "150"},
}
"""The topics' configurations, by a part of their names."""
INT_BOUNDS = (-(2**31), -1, 0, 1, 2**31 - 1)
LONG_BOUNDS = (-(2**63), -2, -1, 0, 1, 2**63 - 1)


@dataclass
class MadeRecord:
    """One record; each number can be given as bytes instead."""

    timestamp: int | bytes
    offset: int | bytes
    key: bytes | None = b"k"
    value: bytes | None = b"value"
    headers: list[tuple[bytes | None, bytes | None]] = field(default_factory=list)
    length: int | bytes | None = None
    key_length: int | bytes | None = None
    value_length: int | bytes | None = None
    header_count: int | bytes | None = None
    attributes: int = 0
    tail: bytes = b""

    def encoded(self) -> bytes:
        def number(value: int | bytes) -> bytes:
            return value if isinstance(value, bytes) else encode_varint(value)

        def sized(data: bytes | None, length: int | bytes | None) -> bytes:
            known = (-1 if data is None else len(data)) if length is None else length
            return number(known) + (data or b"")

        count = len(self.headers) if self.header_count is None else self.header_count
        body = bytes([self.attributes]) + number(self.timestamp) + number(self.offset)
        body += sized(self.key, self.key_length) + sized(self.value, self.value_length)
        body += number(count)
        body += b"".join(sized(name, None) + sized(value, None) for name, value in self.headers)
        body += self.tail
        return number(len(body) if self.length is None else self.length) + body


@dataclass
class Made:
    """A batch, and the names of what was changed in it."""

    records: list[MadeRecord]
    codec: int
    base_timestamp: int
    max_timestamp: int
    base_offset: int = 0
    leader_epoch: int = -1
    magic: int = 2
    attributes: int = 0
    last_offset_delta: int = 0
    producer: tuple[int, int, int] = (-1, -1, -1)
    count: int = 0
    names: list[str] = field(default_factory=list)
    payload_tail: bytes = b""
    """After the last record."""
    stream_tail: bytes = b""
    """After the compressed stream."""
    batch_tail: bytes = b""
    cut: int = 0
    junk: bytes | None = None
    """In place of the payload."""
    length: int | None = None
    crc_flip: int = 0

    def encoded(self) -> bytes:
        payload = b"".join(record.encoded() for record in self.records) + self.payload_tail
        payload = compress(Compression(self.codec), payload) if self.junk is None else self.junk
        payload = payload[: len(payload) - self.cut] + self.stream_tail
        rest = pack(
            ">hiqqqhii",
            self.attributes,
            _int32(self.last_offset_delta),
            self.base_timestamp,
            self.max_timestamp,
            *self.producer,
            _int32(self.count),
        )
        rest += payload
        length = len(rest) + 9 if self.length is None else self.length
        head = pack(">qiib", self.base_offset, length, self.leader_epoch, self.magic)
        data = head + pack(">I", crc32c(rest) ^ self.crc_flip) + rest
        return data + (data if self.batch_tail == b"again" else self.batch_tail)


def _int32(value: int) -> int:
    return max(-(2**31), min(value, 2**31 - 1))


def good(chance: Random, now_ms: int) -> Made:
    base = now_ms - chance.randrange(100_000)
    records = []
    for index in range(chance.choice([1, 1, 2, 3, 4, 70])):
        headers = [(b"h", b"x"), (b"", None)][: chance.choice([0, 0, 0, 1, 2])]
        key = None if chance.random() < 0.1 else b"key"
        value = chance.choice([b"value", b"value", b"", None, b"long" * 40])
        records.append(MadeRecord(chance.randrange(9000), index, key, value, list(headers)))
    codec = chance.randrange(5)
    times = [base + record.timestamp for record in records if isinstance(record.timestamp, int)]
    made = Made(records, codec, base, max(times), attributes=codec)
    made.count, made.last_offset_delta = len(records), len(records) - 1
    if chance.random() < 0.2:
        made.producer = (chance.randrange(10**6, 10**9), chance.randrange(3), 0)
    return made


Damage = Callable[[Made, Random], None]
DAMAGES: dict[str, Damage] = {}


def damage(function: Damage) -> Damage:
    DAMAGES[function.__name__] = function
    return function


def _some(made: Made, chance: Random) -> MadeRecord:
    return chance.choice(made.records)


@damage
def base_offset(made: Made, chance: Random) -> None:
    made.base_offset = chance.choice([*LONG_BOUNDS, 5, 2**63 - 2])


@damage
def count(made: Made, chance: Random) -> None:
    made.count = chance.choice([made.count + 1, made.count - 1, *INT_BOUNDS])


@damage
def last_offset_delta(made: Made, chance: Random) -> None:
    made.last_offset_delta += chance.choice([1, -1, 2**30])


@damage
def count_and_delta(made: Made, chance: Random) -> None:
    made.count += chance.choice([1, -1, 2, 1000])
    made.last_offset_delta = made.count - 1


@damage
def codec_bits(made: Made, chance: Random) -> None:
    made.attributes = made.attributes & ~7 | chance.randrange(8)


@damage
def flags(made: Made, chance: Random) -> None:
    made.attributes ^= chance.choice([8, 8, 0x10, 0x20, 0x40, 0x80, 0x100, -0x8000])


@damage
def max_timestamp(made: Made, chance: Random) -> None:
    made.max_timestamp = chance.choice([made.max_timestamp + 1, made.base_timestamp, *LONG_BOUNDS])


@damage
def base_timestamp(made: Made, chance: Random) -> None:
    made.base_timestamp = chance.choice([*LONG_BOUNDS, made.base_timestamp - 3 * HOUR])


@damage
def record_timestamp(made: Made, chance: Random) -> None:
    _some(made, chance).timestamp = chance.choice([*LONG_BOUNDS, -2 * HOUR, 2 * HOUR])


@damage
def producer(made: Made, chance: Random) -> None:
    one = chance.randrange(10**9, 10**10)
    made.producer = chance.choice(
        [(one, 0, -1), (one, -1, 0), (one, 0, 5), (-1, 0, 0), (-1, -1, 7), (-2, 0, 0), (one, 0, -2)]
    )


@damage
def length_field(made: Made, chance: Random) -> None:
    right = len(made.encoded()) - 12
    made.length = chance.choice([right - 1, right + 1, right - 20, 48, 49, 60, 13, 14, *INT_BOUNDS])


@damage
def magic(made: Made, chance: Random) -> None:
    made.magic = chance.choice([0, 1, 3, -1, 127, -128])


@damage
def crc(made: Made, chance: Random) -> None:
    made.crc_flip = 1 << chance.randrange(32)


@damage
def leader_epoch(made: Made, chance: Random) -> None:
    made.leader_epoch = chance.choice(INT_BOUNDS)


@damage
def after_the_batch(made: Made, chance: Random) -> None:
    size = chance.choice([1, 5, 11, 12, 16, 17, 20, 61])
    made.batch_tail = chance.choice([bytes(size), b"again", made.encoded()[:size], b"\xff" * size])


@damage
def after_the_records(made: Made, chance: Random) -> None:
    made.payload_tail = chance.choice([b"\0", b"zzzz", made.records[0].encoded()])


@damage
def after_the_stream(made: Made, chance: Random) -> None:
    made.stream_tail = chance.choice([b"\0", b"zzzz", bytes(40), b"\xff" * 40])


@damage
def cut(made: Made, chance: Random) -> None:
    made.cut = chance.choice([1, 2, 4, 8, 9, 12, 30])


@damage
def junk(made: Made, chance: Random) -> None:
    made.junk = chance.choice([b"", b"\0", chance.randbytes(chance.choice([3, 17, 60, 300]))])


@damage
def record_length(made: Made, chance: Random) -> None:
    record = _some(made, chance)
    right = len(record.encoded()) - 1
    record.length = chance.choice([right - 1, right + 1, right + 100, 3, 5, 6, *INT_BOUNDS])


@damage
def record_tail(made: Made, chance: Random) -> None:
    _some(made, chance).tail = chance.choice([b"\0", b"zz", bytes(40)])


@damage
def record_attributes(made: Made, chance: Random) -> None:
    _some(made, chance).attributes = chance.choice([1, 8, 255])


@damage
def offset_delta(made: Made, chance: Random) -> None:
    record = _some(made, chance)
    assert isinstance(record.offset, int)
    record.offset = chance.choice([record.offset + 1, record.offset - 1, *INT_BOUNDS])


@damage
def key_length(made: Made, chance: Random) -> None:
    _some(made, chance).key_length = chance.choice([-2, 2, 4, 100, *INT_BOUNDS])


@damage
def value_length(made: Made, chance: Random) -> None:
    _some(made, chance).value_length = chance.choice([-2, 2, 6, 100, *INT_BOUNDS])


@damage
def header_count(made: Made, chance: Random) -> None:
    _some(made, chance).header_count = chance.choice([2, 3, 100, *INT_BOUNDS])


@damage
def header_without_a_name(made: Made, chance: Random) -> None:
    _some(made, chance).headers = [(None, b"x")]


@damage
def many_headers(made: Made, chance: Random) -> None:
    _some(made, chance).headers = [(b"h%d" % n, b"x") for n in range(chance.choice([31, 33, 90]))]


@damage
def long_numbers(made: Made, chance: Random) -> None:
    """Varints of too many bytes, of bytes that say nothing, and of bits beyond their width."""
    record = _some(made, chance)
    number = b"\x80" * chance.choice([1, 4, 5, 9, 10]) + chance.choice([b"\0", b"\x70", b"\x02"])
    name = chance.choice(["timestamp", "offset", "key_length", "header_count", "length"])
    setattr(record, name, number)


@damage
def without_keys(made: Made, chance: Random) -> None:
    for record in made.records:
        record.key = None if chance.random() < 0.7 else record.key


@damage
def large_value(made: Made, chance: Random) -> None:
    _some(made, chance).value = chance.choice([bytes(20_000), chance.randbytes(70_000)])


def made_batch(chance: Random, now_ms: int) -> Made:
    """One in ten has nothing wrong; others are changed in one place, or in two."""
    made = good(chance, now_ms)
    roll = chance.random()
    for _ in range(0 if roll < 0.1 else 1 if roll < 0.8 else 2):
        name = chance.choice(list(DAMAGES))
        DAMAGES[name](made, chance)
        made.names.append(name)
    return made


class Case:
    """One request: a batch in partition 0, and perhaps a good one in partition 1."""

    def __init__(self, number: int, now_ms: int) -> None:
        chance = Random(f"made {number}")
        self.number = number
        self.config = chance.choice([*CONFIGS, "plain", "plain", "plain"])
        self.topic = f"made-{self.config}"
        self.version = chance.choice([3, 5, 7, 7, 7, 8, 9, 9, 9, 10, 10])
        self.acks = chance.choice([-1, -1, -1, 1, 0])
        self.transactional_id = None if chance.random() < 0.9 else "made-id"
        self.made: Made = made_batch(chance, now_ms)
        self.batches = {0: self.made.encoded()}
        if chance.random() < 0.2:
            self.batches[1] = good(chance, now_ms).encoded()

    def __str__(self) -> str:
        made = self.made
        return (
            f"{self.number}: {made.names} codec {made.codec} {self.topic} v{self.version} "
            f"acks {self.acks} id {self.transactional_id} {self.batches[0][:300].hex()}"
        )


def _negative(case: Case) -> bool:
    times = [case.made.base_timestamp + _number(r.timestamp) for r in case.made.records]
    negative = any(time not in range(-1, 2**63) for time in times)
    return case.config in CODECS and (negative or case.made.producer[1] < 0)


def _number(value: int | bytes) -> int:
    return value if isinstance(value, int) else read_varint(value + b"\0", 0)[0]


def _offset_deltas(case: Case) -> bool:
    try:
        return any(_number(r.offset) != n for n, r in enumerate(case.made.records))
    except ApiError:  # too long a number is another mistake
        return False


def _lengths(case: Case) -> bool:
    made = case.made
    return made.codec > 0 and any(record.length is not None for record in made.records)


def _unknown_codec_before_v7(case: Case) -> bool:
    return case.version < 7 and case.made.attributes & 7 > 4


STRICTER = frozenset(
    (
        "bytes after the batch",
        "bytes after a compressed stream",
        "a record's length in a compressed batch",
        "offset deltas",
    )
)
"""Differences that are refusals."""
DECLARED: dict[str, Callable[[Case], bool]] = {
    "bytes after the batch": lambda case: "after_the_batch" in case.made.names,
    "bytes after a compressed stream": lambda case: "after_the_stream" in case.made.names,
    "a record's length in a compressed batch": _lengths,
    "offset deltas": _offset_deltas,
    "negative timestamps and epochs under a topic's codec": _negative,
    "two mistakes, one of them a stream cut short": lambda case: (
        case.made.codec > 0 and "cut" in case.made.names and len(case.made.names) > 1
    ),
    "a batch that cannot be found fails its whole request": lambda case: (
        bool({"length_field", "magic"} & set(case.made.names)) or _unknown_codec_before_v7(case)
    ),
    "a producer's LogAppendTime under a topic's codec": lambda case: (
        case.config in CODECS and bool(case.made.attributes & 8)
    ),
}
