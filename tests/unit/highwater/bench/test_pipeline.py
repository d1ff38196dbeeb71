"""The pipeline's benchmarks: their requests and their counts."""

from __future__ import annotations

from highwater.bench.figures.rows import percentile, rows_text
from highwater.bench.loads.many_producers import produce_frame
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.header import parse_request_header
from highwater.kafka.wire.produce import parse_produce
from highwater.kafka.wire.records import validate_produce


def test_the_loads_frame_is_one_valid_batch_of_about_the_size() -> None:
    frame = produce_frame("a-topic", 1 << 20)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    header = parse_request_header(frame[4:])
    assert (header.api_key, header.api_version) == (0, 7)
    request = parse_produce(memoryview(bytearray(frame[4 + header.body_position :])), 7)
    assert request.acks == -1
    ((tp, records),) = request.partitions
    assert tp == TopicPartition("a-topic", 0)
    assert records is not None
    assert (1 << 20) - 100 < len(records) <= 1 << 20, "within Kafka's message.max.bytes"
    batch = validate_produce(records, 1048588)
    assert batch.record_count == 1


def test_percentiles_are_samples() -> None:
    samples = [float(n) for n in range(100)]
    assert (percentile(samples, 0.5), percentile(samples, 0.99)) == (50, 99)
    assert percentile([7.0], 0.99) == 7


def test_tables_are_aligned() -> None:
    lines = rows_text(("a", "bbbb"), [("x", 1.25), ("long name", 12)]).splitlines()
    assert lines == ["a          bbbb", "x           1.2", "long name    12"]
