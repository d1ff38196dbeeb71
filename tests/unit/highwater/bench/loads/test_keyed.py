"""The load of keyed batches: valid, the same each time; compaction must leave known records."""

from __future__ import annotations

from highwater.bench.loads.keyed import Keyed
from highwater.kafka.wire.records import batches, check_crc, records_of_batch

LOAD = Keyed(2500, 40)


def test_batches_hold_the_chosen_keys() -> None:
    seen = []
    for data in LOAD.batches():
        (header,) = batches(data)
        assert check_crc(data, header)
        seen.append([record.key for record in records_of_batch(data, header)])
    assert [len(keys) for keys in seen] == [1000, 1000, 500]
    assert seen == [[b"key-%08d" % key for key in keys] for keys in LOAD.choices()]
    assert list(LOAD.batches()) == list(LOAD.batches())
    assert len({bytes(data) for data in LOAD.batches()}) == 3


def test_what_compaction_leaves() -> None:
    keys = [key for some in LOAD.choices() for key in some]
    left = LOAD.expected(2000)
    assert left[-500:] == list(range(2000, 2500))
    below = left[:-500]
    assert len(below) == len({keys[offset] for offset in below}) == 40
    for offset in below:
        assert keys[offset] not in keys[offset + 1 : 2000]
