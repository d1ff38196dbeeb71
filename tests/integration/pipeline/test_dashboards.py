"""Every query of public dashboards finds its series on the page of a live broker, in each dialect.

`dashboards.toml` lists their queries.  The cluster serves clients that fill the panels: producers,
one of them transactional, a group, and a client with a quota.  Series that the list leaves out have
to be missing, so that it leaves out no existing number.
"""

from __future__ import annotations

import re
import time
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import trio
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from highwater.cluster.ask import ask
from highwater.cluster.processes.process_cluster import ProcessCluster, process_cluster
from highwater.cluster.processes.process_settings import Settings
from highwater.kafka.wire import messages
from tests.integration.robustness.test_metrics import get

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
LISTED = tomllib.loads(Path(__file__).with_name("dashboards.toml").read_text())
Page = dict[str, list[dict[str, str]]]


def parsed(page: str) -> Page:
    """The label sets of each name."""
    found: Page = {}
    for line in page.splitlines():
        match = re.match(r"(\w+)(?:\{(.*)\})? \S+$", line)
        if match is not None:
            found.setdefault(match[1], []).append(
                dict(re.findall(r'(\w+)="([^"]*)"', match[2] or ""))
            )
    return found


def finds(page: Page, selector: str) -> bool:
    match = re.fullmatch(r"(\w+)(?:\{(.*)\})?", selector)
    assert match is not None, selector
    wanted = dict(part.partition("=")[::2] for part in (match[2] or "").split(",") if part)
    return any(
        all(name in labels and value in ("", f'"{labels[name]}"') for name, value in wanted.items())
        for labels in page.get(match[1], [])
    )


def test_a_selector_is_found_by_name_and_labels() -> None:
    page = parsed('# TYPE a gauge\na{x="1",y="two"} 5\nb 1e-05\n')
    found = [s for s in ("a", "a{x}", 'a{x="1",y}', "b") if finds(page, s)]
    assert len(found) == 4
    assert not any(finds(page, s) for s in ("c", "a{z}", 'a{x="2"}', 'a{x="1",y="1"}', "b{x}"))


async def limit(cluster: ProcessCluster, client_id: str) -> None:
    """Sets a quota for a client; nothing is counted for clients without one."""
    request = messages.AlterClientQuotasRequest
    entry = request.EntryData
    rates = [
        entry.OpData(key=key, value=value, remove=False)
        for key, value in (
            ("producer_byte_rate", 1e6), ("consumer_byte_rate", 1e6), ("request_percentage", 100.0),
        )
    ]  # fmt: skip
    entity = [entry.EntityData(entity_type="client-id", entity_name=client_id)]
    entries = [entry(entity=entity, ops=rates)]
    answer = await ask(cluster.address(1), request(entries=entries, validate_only=False), 0, 20)
    assert [e.error_code for e in answer.entries] == [0]


def use(bootstrap: str) -> None:
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "client.id": "limited",
        "log_level": 0,
    }
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic("t", 1, 2)])["t"].result(60)
    producer = Producer(settings)
    for _ in range(100):
        producer.produce("t", b"x" * 1000)
    assert producer.flush(60) == 0
    transactional = Producer({**settings, "transactional.id": "x"})
    transactional.init_transactions(30)
    transactional.begin_transaction()
    transactional.produce("t", b"x")
    transactional.commit_transaction(30)
    consumer = Consumer({**settings, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    seen, deadline = 0, time.monotonic() + 30
    while seen < 101:
        assert time.monotonic() < deadline, f"{seen} of 101 records"
        seen += len(consumer.consume(100, 0.2))
    consumer.commit(asynchronous=False)
    consumer.close()


def pages(cluster: ProcessCluster) -> Page:
    """The pages of all brokers together, as dashboards see them."""
    found: Page = {}
    for number in cluster.brokers:
        status, text = get(cluster.metrics_port(number), "/metrics")
        assert status == 200
        for name, label_sets in parsed(text).items():
            found.setdefault(name, []).extend(label_sets)
    return found


def missing(page: Page, dashboards: Iterable[str], dialect: str) -> list[str]:
    return [
        selector
        for dashboard in dashboards
        for selector in LISTED[dialect][dashboard]["selectors"]
        if not finds(page, selector)
    ]


def of_our_pages() -> set[str]:
    """The series that the page on metrics and our board name."""
    docs = Path(__file__).parents[3] / "docs"
    texts = [(docs / name).read_text() for name in ("metrics.md", "monitoring/dashboard.json")]
    names = {name for text in texts for name in re.findall(r"\b(?:kafka|highwater)_\w+", text)}
    assert len(names) > 30, names
    return names - {"kafka_server_brokertopicmetrics_messagesin_total"}  # of the other dialect


@pytest.mark.parametrize("dialect", ["confluent", "jmx-exporter"])
async def test_every_query_finds_its_series(dialect: str, tmp_path: Path) -> None:
    properties = {
        "highwater.metrics.dialect": dialect, "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": "2", "transaction.state.log.num.partitions": "1",
        "transaction.state.log.replication.factor": "2", "transaction.state.log.min.isr": "1",
    }  # fmt: skip
    settings = Settings(tmp_path, brokers=2, properties=properties, quick_end=True)
    async with process_cluster(settings) as cluster:
        await limit(cluster, "limited")
        await trio.to_thread.run_sync(use, cluster.bootstrap)
        page = await trio.to_thread.run_sync(pages, cluster)
    dashboards = [name for name in LISTED[dialect] if name != "left_out"]
    assert missing(page, dashboards, dialect) == []
    if dialect == "confluent":
        assert of_our_pages() - page.keys() == set()
    left_out = [name for names in LISTED[dialect].get("left_out", {}).values() for name in names]
    assert [name for name in left_out if name in page] == [], "listed as left out, and there"
