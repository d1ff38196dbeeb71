"""Histograms, the registry, the page, and the server that hands it out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from highwater.base.metrics import JMX_EXPORTER, WINDOW_NS, Registry, TimeHistogram, exposition
from highwater.broker.context import Context
from highwater.broker.measure.metrics_server import MetricsServer, open_metrics_server
from highwater.broker.request.response import Response
from highwater.kafka.config import Config
from highwater.world.real.clock import RealClock
from highwater.world.real.network import RealNetwork

from .conftest import entry, serving


@given(st.lists(st.integers(0, 10**11), min_size=1, max_size=200))
def test_quantiles_are_right_within_a_bucket(values: list[int]) -> None:
    histogram = TimeHistogram()
    for value in values:
        histogram.record(value)
    ordered = sorted(values)
    for quantile, ms in zip((0.5, 0.99), histogram.quantiles_ms((0.5, 0.99)), strict=True):
        exact = ordered[
            min(len(ordered) - 1, max(0, -(-int(quantile * 1000) * len(ordered) // 1000) - 1))
        ]
        assert abs(ms * 1e6 - exact) <= exact * 0.07 + 128
    assert histogram.count == len(values)


def test_quantiles_forget_what_is_two_windows_old() -> None:
    histogram = TimeHistogram()
    histogram.rotate(WINDOW_NS)
    histogram.record(10**9)
    histogram.rotate(WINDOW_NS * 2)
    assert histogram.quantiles_ms((0.5,))[0] > 900
    histogram.record(10**6)
    histogram.rotate(WINDOW_NS * 3)
    assert histogram.quantiles_ms((0.99,))[0] < 2
    assert histogram.count == 2


@pytest.mark.parametrize(
    ("given", "bound"),
    [
        ({"listeners": "A://127.0.0.1:0,B://:0"}, "127.0.0.1"),
        (
            {"listeners": "B://:0,A://127.0.0.1:0", "highwater_metrics_host": "127.0.0.1"},
            "127.0.0.1",
        ),
        ({"listeners": "A://127.0.0.1:0", "highwater_metrics_host": "0.0.0.0"}, "0.0.0.0"),
    ],
)
async def test_the_page_is_where_the_first_listener_is(given: dict[str, str], bound: str) -> None:
    config = Config(
        highwater_metrics_port=0,
        listener_security_protocol_map="A:PLAINTEXT,B:PLAINTEXT",
        inter_broker_listener_name="A",
        **given,  # type: ignore[arg-type]
    )
    world = cast("Any", SimpleNamespace(network=RealNetwork(), clock=RealClock()))
    server = await open_metrics_server(config, world, Registry(), lambda: True)
    assert server is not None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.run)
        assert server.address[0] == bound
        nursery.cancel_scope.cancel()


def registry() -> Registry:
    found = Registry()
    found.counter("kafka_server_replicamanager_isrshrinkspersec", "Shrinks").add(3)
    found.counter("kafka_server_brokertopicmetrics_bytesinpersec", topic='a"b\\c').add(7)
    found.gauge("kafka_controller_kafkacontroller_activecontrollercount", lambda: 1)
    found.gauge("by_topic", lambda: {(("topic", "t"),): 5.0, (("topic", "u"),): 6.0}, kind="x")
    found.histogram("kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms").record(10**6)
    return found


def page(dialect: str = "confluent") -> dict[str, list[Any]]:
    text = exposition(registry().families(0), dialect)
    return {f.name: f.samples for f in text_string_to_metric_families(text)}


def test_the_page_in_the_confluent_dialect() -> None:
    found = page()
    assert found["kafka_server_replicamanager_isrshrinkspersec"][0].value == 3
    sample = found["kafka_server_brokertopicmetrics_bytesinpersec"][0]
    assert (sample.labels, sample.value) == ({"topic": 'a"b\\c'}, 7)
    assert [(s.labels, s.value) for s in found["by_topic"]] == [
        ({"kind": "x", "topic": "t"}, 5),
        ({"kind": "x", "topic": "u"}, 6),
    ]
    latency = found["kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms"]
    assert 0.9 < latency[0].value < 1.1
    assert latency[-1].name.endswith("_count")


def test_the_page_in_the_jmx_exporters_dialect() -> None:
    found = page(JMX_EXPORTER)
    assert found["kafka_server_replicamanager_isrshrinks"][0].name.endswith("_isrshrinks_total")
    assert "kafka_server_replicamanager_isrshrinkspersec" not in found


def test_a_series_can_be_removed() -> None:
    found = registry()
    found.remove("kafka_server_brokertopicmetrics_bytesinpersec", topic='a"b\\c')
    assert "bytesinpersec{" not in exposition(found.families(0))


async def get(address: tuple[str, int], request: bytes) -> bytes:
    stream = await trio.open_tcp_stream(*address)
    async with stream:
        await stream.send_all(request)
        return b"".join([part async for part in stream])


async def test_the_server_and_a_brokers_page() -> None:
    ready = False

    def handle(ctx: Context, body: memoryview) -> Response:
        return Response(parts=[b""], error_names=("NOT_LEADER_OR_FOLLOWER",))

    network = RealNetwork()
    async with serving(network, entry(handle)) as s, trio.open_nursery() as nursery:
        client = await s.connect()
        await client.call(b"\xff\xff\xff\xff")
        await client.call(b"\0\0\0\x02")
        world = cast("Any", SimpleNamespace(network=network, clock=RealClock()))
        server = MetricsServer(world, s.services.metrics, ready=lambda: ready)
        address = await server.bind("127.0.0.1", 0)
        nursery.start_soon(server.run)
        assert b" 503 " in await get(address, b"GET /readyz HTTP/1.1\r\n\r\n")
        ready = True
        assert b" 200 OK" in await get(address, b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b" 200 OK" in await get(address, b"GET /healthz HTTP/1.0\r\n\r\n")
        assert b" 404 " in await get(address, b"GET / HTTP/1.1\r\n\r\n")
        assert b" 405 " in await get(address, b"POST /metrics HTTP/1.1\r\n\r\n")
        head, _, text = (await get(address, b"GET /metrics HTTP/1.1\r\n\r\n")).partition(
            b"\r\n\r\n"
        )
        assert f"Content-Length: {len(text)}".encode() in head
        found = {
            (sample.name, *sorted(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text.decode())
            for sample in family.samples
        }
        requests = "kafka_network_requestmetrics_requestspersec"
        for name, count in (("Fetch", 2), ("FetchConsumer", 1), ("FetchFollower", 1)):
            assert found[requests, ("request", name), ("version", "4")] == count
        errors = "kafka_network_requestmetrics_errorspersec"
        assert found[errors, ("error", "NOT_LEADER_OR_FOLLOWER"), ("request", "Fetch")] == 2
        assert found["kafka_network_requestmetrics_totaltimems_count", ("request", "Fetch")] == 2
        connections = "kafka_server_socketservermetrics_connection_count"
        assert found[connections, ("listener", "PLAINTEXT"), ("network_processor", "0")] == 1
        with pytest.raises(OSError, match=r"highwater\.metrics\.port"):
            await MetricsServer(world, s.services.metrics).bind(*address)
        nursery.cancel_scope.cancel()
