"""The costs of a request as something grows: growth, table, page; and the load's own checks."""

from __future__ import annotations

import itertools
from struct import pack

from highwater.bench.figures.rows import Samples, Table, table_of
from highwater.bench.flat import APIS, CONNECTIONS, FIGURES, GIB, PARTITIONS, Plan, html, lines
from highwater.bench.loads.spread_requests import fetch_frame, problem, produce_frame
from highwater.kafka.wire.fetch import parse_fetch
from highwater.kafka.wire.header import parse_request_header


def table() -> Table:
    """What a request costs with one connection and with 5,000: half more."""
    samples, steps = Samples(), dict.fromkeys((PARTITIONS, CONNECTIONS, GIB), (1, 5000))
    for axis, api, name in itertools.product(steps, APIS, FIGURES):
        samples.add(f"{api} 1 {axis} {name}", 0, 100.0, 120.0)
        samples.add(f"{api} 5000 {axis} {name}", 0, 150.0, 170.0)
    return table_of(lines(Plan(steps, 10), samples), samples)


def test_growth_is_the_last_step_to_the_first() -> None:
    shown = table().markdown()
    assert f"| 5000 open connections |{' 160 (150-170 of 2) |' * 6}" in shown
    assert "| open connections: last step to first | 1.45 |  |  | 1.45 |  |  |" in shown


def test_the_page_has_a_plot_for_each_axis_with_every_step() -> None:
    page = html(table(), "measured")
    assert page.count("<svg") == 3
    assert page.count("<polyline") == 6
    assert ">5000</text>" in page
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
