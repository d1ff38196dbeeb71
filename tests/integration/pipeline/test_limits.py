"""Quotas and dynamic broker configuration, set by Apache's own tool and felt by real clients."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.integration.robustness.rig import BrokerProcess, ZooKeeper, fresh_port
from tests.integration.robustness.test_metrics import get
from tests.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.apache, pytest.mark.timeout(300)]
Brokers = Callable[..., BrokerProcess]
Run = Callable[..., "subprocess.CompletedProcess[str]"]
CONFIGS = "kafka.admin.ConfigCommand"
KIB = 1024


@pytest.fixture
def broker(zookeeper: ZooKeeper, brokers: Brokers) -> BrokerProcess:
    return brokers(
        zookeeper.fresh_path(), highwater_metrics_port=str(fresh_port()),
        offsets_topic_replication_factor="1", quota_window_num="2", controller_quota_window_num="2",
    ).serving()  # fmt: skip


def metrics(broker: BrokerProcess) -> dict[str, float]:
    status, page = get(int(broker.properties["highwater.metrics.port"]), "/metrics")
    assert status == 200
    lines = [line.rsplit(" ", 1) for line in page.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in lines}


def configure(apache_tool: Run, broker: BrokerProcess, *arguments: str) -> str:
    done = apache_tool(CONFIGS, ["--bootstrap-server", broker.bootstrap, *arguments])
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def produce(broker: BrokerProcess, topic: str, count: int, **settings: Any) -> list[float]:
    """Sends records of 50 KiB until all are acknowledged; returns the throttle times that
    librdkafka saw."""
    throttled: list[float] = []
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "throttle_cb": lambda event: throttled.append(event.throttle_time),
            "batch.size": 100 * KIB,
            **settings,
        }
    )
    for _ in range(count):
        producer.produce(topic, b"x" * 50 * KIB)
    deadline = time.monotonic() + 60
    while len(producer) and time.monotonic() < deadline:
        producer.poll(0.1)  # flush() serves no throttle events
    assert not len(producer)
    return throttled


def test_byte_rates_of_a_client_id(broker: BrokerProcess, apache_tool: Run) -> None:
    quotas = ["--entity-type", "clients", "--entity-name", "slow", "--alter", "--add-config"]
    rates = "producer_byte_rate=500000,consumer_byte_rate=500000"
    configure(apache_tool, broker, *quotas, rates)
    described = configure(
        apache_tool, broker, "--entity-type", "clients", "--entity-name", "slow", "--describe"
    )
    assert "producer_byte_rate=500000.0" in described
    began = time.monotonic()
    assert produce(broker, "t", 40, **{"client.id": "fast"}) == []
    free = time.monotonic() - began
    began = time.monotonic()
    assert produce(broker, "t", 40, **{"client.id": "slow"}), "librdkafka is told of it"
    took = time.monotonic() - began
    assert took > 40 * 50 * KIB / 500_000 - 2.5 > free
    found = metrics(broker)
    throttle = 'kafka_network_requestmetrics_throttletimems_count{request="Produce"}'
    assert found[throttle] > 0
    rate = 'kafka_server_produce_byte_rate{user="",client_id="slow"}'
    assert 200_000 < found[rate] < 900_000
    assert found['kafka_server_brokertopicmetrics_messagesinpersec{topic="t"}'] == 80
    assert found["kafka_server_brokertopicmetrics_bytesinpersec"] > 80 * 50 * KIB
    assert not [n for n in found if 'client_id="fast"' in n]

    throttled: list[float] = []
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap, "client.id": "slow", "group.id": "g",
            "auto.offset.reset": "earliest", "fetch.message.max.bytes": 300_000,
            "throttle_cb": lambda event: throttled.append(event.throttle_time),
        }
    )  # fmt: skip
    consumer.subscribe(["t"])
    seen, first, last = 0, 0.0, 0.0
    deadline = time.monotonic() + 60
    while seen < 80 and time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            seen, last = seen + 1, time.monotonic()
            first = first or last
    consumer.close()
    assert seen == 80, "all of them come, if late"
    assert last - first > 80 * 50 * KIB / 500_000 - 3
    assert throttled
    fetched = metrics(broker)["kafka_server_brokertopicmetrics_bytesoutpersec"]
    assert 80 * 50 * KIB < fetched < 2 * 80 * 50 * KIB
    configure(
        apache_tool, broker, *quotas[:-1],
        "--delete-config", "producer_byte_rate,consumer_byte_rate",
    )  # fmt: skip
    assert produce(broker, "t", 40, **{"client.id": "slow"}) == []


def test_controller_mutations_of_a_user(broker: BrokerProcess, apache_tool: Run) -> None:
    configure(
        apache_tool, broker, "--entity-type", "users", "--entity-default",
        "--alter", "--add-config", "controller_mutation_rate=1",
    )  # fmt: skip
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("a", 60, 1)])["a"].result()
    done = apache_tool(
        "org.apache.kafka.tools.TopicCommand",
        f"--bootstrap-server {broker.bootstrap} --create --topic b --partitions 1".split(),
    )
    # it has a debt of a minute, and this tool does not try again
    assert done.returncode != 0
    assert "ThrottlingQuotaExceededException" in done.stdout + done.stderr
    assert (
        metrics(broker)[
            'kafka_server_controllermutation_throttle_time{user="ANONYMOUS",client_id=""}'
        ]
        > 0
    )


def test_threads_and_limits_change_while_it_runs(broker: BrokerProcess, apache_tool: Run) -> None:
    def alter(value: str) -> str:
        return configure(
            apache_tool, broker, "--entity-type", "brokers", "--entity-name", "1",
            "--alter", "--add-config", value,
        )  # fmt: skip

    def processors() -> int:
        name = "kafka_network_processor_idlepercent"
        return sum(1 for series in metrics(broker) if series.startswith(name))

    before = processors()
    alter("num.network.threads=6,num.io.threads=16,log.segment.bytes=200000")
    eventually(lambda: processors() == before + 3, "three processors more", lambda: broker.output)
    produce(broker, "t", 20)
    found = metrics(broker)
    assert found['kafka_log_log_numlogsegments{topic="t",partition="0"}'] >= 5
    alter("num.network.threads=3")
    eventually(lambda: processors() == before, "as before", lambda: broker.output)
    produce(broker, "t", 5)
    described = configure(
        apache_tool, broker, "--entity-type", "brokers", "--entity-name", "1", "--describe"
    )
    assert "num.io.threads=16" in described
    assert "DYNAMIC_BROKER_CONFIG:num.io.threads=16" in described
    done = apache_tool(
        CONFIGS,
        f"--bootstrap-server {broker.bootstrap} --entity-type brokers --entity-name 1"
        " --alter --add-config zookeeper.connect=elsewhere".split(),
    )
    assert done.returncode != 0
    assert broker.stop() == 0
    broker.serving()  # and it still holds after a restart
    eventually(
        lambda: len(broker.lines("dynamic configuration: .*num.io.threads")) == 1,
        "read at the start",
        lambda: broker.output,
    )


def test_the_request_log_is_turned_on_while_it_runs(
    broker: BrokerProcess, apache_tool: Run
) -> None:
    level = ["--entity-type", "broker-loggers", "--entity-name", "1", "--alter", "--add-config"]
    assert not broker.lines("Completed request:")
    configure(apache_tool, broker, *level, "kafka.request.logger=DEBUG")
    secret = "hunter2-of-the-keystore"
    apache_tool(
        CONFIGS,
        f"--bootstrap-server {broker.bootstrap} --entity-type brokers --entity-name 1 --alter"
        f" --add-config listener.name.plaintext.ssl.keystore.password={secret}".split(),
    )
    written = "keystore.password.*hidden"
    eventually(lambda: broker.lines(written), "its line", lambda: len(broker.output))
    assert secret not in broker.output
    line = broker.lines(written)[-1]
    told = json.loads(line[line.index("{") : line.rindex("}") + 1])
    (resource,) = told["request"]["resources"]
    assert resource["configs"][0]["value"] == "[hidden]"
    produce(broker, "t", 1)
    eventually(
        lambda: broker.lines('"requestApiKeyName":"PRODUCE"'),
        "a Produce",
        lambda: len(broker.output),
    )
