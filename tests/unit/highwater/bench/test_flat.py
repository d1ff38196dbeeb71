"""The costs of a request as something grows: growth, table, page; and the load's own checks."""

from __future__ import annotations

from struct import pack

from highwater.bench.flat import Axis, Step, html, markdown
from highwater.bench.loads.spread_requests import fetch_frame, problem, produce_frame
from highwater.kafka.wire.fetch import parse_fetch
from highwater.kafka.wire.header import parse_request_header


def step(at: float, cpu_us: float) -> Step:
    samples = {"produce": [cpu_us, cpu_us + 2], "fetch": [cpu_us / 2]}
    return Step(at, samples, samples, samples)


AXES = [Axis("open connections", [step(1, 100), step(5000, 150)])]


def test_growth_is_the_last_step_to_the_first() -> None:
    shown = markdown(AXES)
    assert "| 5000 | 151 | 151 | 151 | 75 | 75 | 75 |" in shown
    assert "CPU of a request, last step to first: produce 1.50, fetch 1.50." in shown


def test_the_page_has_a_plot_with_every_step() -> None:
    page = html(AXES, "measured")
    assert page.count("<svg") == 1
    assert page.count("<polyline") == 2
    assert ">5000</text>" in page


def test_frames_name_the_partition_and_the_offset() -> None:
    frame = fetch_frame("flat", 7, 42)
    header = parse_request_header(memoryview(frame)[4:])
    assert (header.api_key, header.api_version) == (1, 4)
    asked = parse_fetch(memoryview(frame)[4:][header.body_position :], 4)
    [partition] = asked.partitions
    assert (tuple(partition.tp), partition.fetch_offset) == (("flat", 7), 42)
    assert parse_request_header(memoryview(produce_frame("flat", 7, b"x"))[4:]).api_key == 0


def test_an_error_or_an_empty_fetch_is_a_problem() -> None:
    head = pack(">iih", 1, 1, 4) + b"flat" + pack(">ii", 1, 7)
    produced = head + pack(">hqqqi", 6, -1, -1, 0, 0)
    assert problem("produce", "flat", produced) == "error 6"
    assert problem("produce", "flat", head + pack(">hqqqi", 0, 3, -1, 0, 0)) == ""
    head = pack(">iiih", 1, 0, 1, 4) + b"flat" + pack(">ii", 1, 7)
    assert problem("fetch", "flat", head + pack(">hqqii", 1, -1, -1, -1, 0)) == "error 1"
    assert problem("fetch", "flat", head + pack(">hqqii", 0, 3, 3, -1, 0)) == "it has no records"
    assert problem("fetch", "flat", head + pack(">hqqii", 0, 3, 3, 0, 61) + bytes(61)) == ""
