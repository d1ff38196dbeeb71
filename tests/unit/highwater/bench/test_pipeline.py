"""The pipeline's benchmarks: their requests, their counts, and their verdicts."""

from __future__ import annotations

from xml.etree import ElementTree

from highwater.bench import control_plane, overload, purgatory
from highwater.bench.figures.rows import rows_text
from highwater.bench.loads.many_producers import produce_frame
from highwater.bench.loads.pipeline_load import percentile
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
    (batch,) = validate_produce(records, 1048588)
    assert batch.record_count == 1


def test_percentiles_are_samples() -> None:
    samples = [float(n) for n in range(100)]
    assert (percentile(samples, 0.5), percentile(samples, 0.99)) == (50, 99)
    assert percentile([7.0], 0.99) == 7


def test_arms_are_compared_at_p99_and_drawn() -> None:
    found = {
        control_plane.SEPARATE: control_plane.Found([1.0, 2.0, 3.0], [5.0], [500]),
        control_plane.SHARED: control_plane.Found([300.0, 90.0], [900.0], [500], never=1),
    }
    assert control_plane.times_apart(found) == 100
    assert control_plane.times_apart({control_plane.SHARED: found[control_plane.SHARED]}) is None
    assert "500" in control_plane.table(found)
    drawn = ElementTree.fromstring(control_plane.plot(found))
    assert len(drawn.findall("{http://www.w3.org/2000/svg}polyline")) == 2


def held(**changes: object) -> bool:
    values: dict[str, object] = {
        "idle_mib": 30.0, "peaks_mib": [40.0, 200.0], "before_ms": 5.0, "after_ms": 8.0,
    }  # fmt: skip
    return overload.Found(overload.Plan(), **{**values, **changes}).holds  # type: ignore[arg-type]


def test_an_overload_holds_only_where_memory_data_and_service_do() -> None:
    assert held()
    limit = 30 + 128 + 16 + overload.ALLOWANCE_MIB
    assert not held(peaks_mib=[40.0, limit + 1.0])
    assert not held(missing=1)
    assert not held(after_ms=16.0)


def test_every_delayed_operation_of_the_benchmark_ends_once() -> None:
    (found,) = purgatory.run([1000], 1, lambda line: None)
    assert found.pending == 1000
    assert min(found.insert_us, found.complete_us, found.expire_us, found.bytes_each) > 0
    assert "1,000" in purgatory.table([found])


def test_tables_are_aligned() -> None:
    lines = rows_text(("a", "bbbb"), [("x", 1.25), ("long name", 12)]).splitlines()
    assert lines == ["a          bbbb", "x           1.2", "long name    12"]
