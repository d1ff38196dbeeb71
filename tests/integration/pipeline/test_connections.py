"""The connections of Java's own clients, seen from the system: when each is opened, and which side
closes it.

The producer connects in its constructor (its sender thread does); the consumer not before it polls,
as it has no thread of its own.  A consumer needs up to three connections to one broker: the first,
by the bootstrap address, for metadata and the coordinator's name; one to the coordinator; one for
data.  The first is not used any more once there is one for data, and closed when it has been idle.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.integration.pipeline.conftest import Jvm
from tests.integration.robustness.rig import BrokerProcess, ZooKeeper, fresh_port
from tests.integration.robustness.test_metrics import get
from tests.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.apache, pytest.mark.timeout(300)]
Brokers = Callable[..., BrokerProcess]
ESTABLISHED, CLOSE_WAIT = "ESTABLISHED", "CLOSE_WAIT"


@pytest.fixture
def broker(zookeeper: ZooKeeper, brokers: Brokers) -> BrokerProcess:
    settings = {
        "highwater_metrics_port": str(fresh_port()),
        "offsets_topic_replication_factor": "1",
    }
    return brokers(zookeeper.fresh_path(), **settings).serving()


def wait(jvm: Jvm, broker: BrokerProcess, states: list[str], what: str) -> None:
    eventually(lambda: jvm.states(broker.port) == states, what, lambda: jvm.states(broker.port))


def connected(jvm: Jvm, broker: BrokerProcess) -> None:
    """Waits for the connection for metadata, and for another one for the producer id if the broker
    was known by then."""
    some = ([ESTABLISHED], [ESTABLISHED] * 2)
    eventually(
        lambda: jvm.states(broker.port) in some,
        "the producer has connected",
        lambda: jvm.states(broker.port),
    )


def produce(jvm: Jvm, broker: BrokerProcess, topic: str) -> None:
    producer = jvm.producer(broker.bootstrap)
    producer.send(jvm.record(topic, "hello")).get()
    producer.close()
    wait(jvm, broker, [], "a closed producer has no connections")


def value(broker: BrokerProcess, name: str) -> float:
    _, page = get(int(broker.properties["highwater.metrics.port"]), "/metrics")
    return sum(float(ln.rsplit(" ", 1)[1]) for ln in page.splitlines() if ln.startswith(name))


def test_the_producer_connects_when_constructed_and_the_consumer_does_not(
    jvm: Jvm, broker: BrokerProcess
) -> None:
    produce(jvm, broker, "t")
    consumer = jvm.consumer(broker.bootstrap, group_id="g")
    consumer.subscribe(jvm.array("t"))
    producer = jvm.producer(broker.bootstrap)
    connected(jvm, broker)
    producer.close()
    wait(jvm, broker, [], "all were the producer's, though a consumer was constructed first")
    consumer.poll(jvm.seconds(0))
    eventually(
        lambda: ESTABLISHED in jvm.states(broker.port),
        "polling connects",
        lambda: jvm.states(broker.port),
    )


def test_the_consumer_leaves_its_first_connection_for_the_one_for_data(
    jvm: Jvm, broker: BrokerProcess
) -> None:
    produce(jvm, broker, "t")
    settings = {"connections_max_idle_ms": 2000, "auto_offset_reset": "earliest"}
    consumer = jvm.consumer(broker.bootstrap, group_id="g", **settings)
    consumer.subscribe(jvm.array("t"))
    eventually(
        lambda: consumer.poll(jvm.seconds(0.2)).count() == 1,
        "the record",
        lambda: jvm.states(broker.port),
    )
    assert jvm.states(broker.port) == [ESTABLISHED] * 3, "bootstrap, coordinator, data"

    def polled() -> bool:
        consumer.poll(jvm.seconds(0.2))
        return jvm.states(broker.port) == [ESTABLISHED] * 2

    eventually(polled, "the first is dropped, the two others stay", lambda: jvm.states(broker.port))
    expired = "kafka_network_socketserver_expiredconnectionskilledcount"
    assert value(broker, expired) == 0, "the client closed it"


def test_the_client_closes_what_is_idle(jvm: Jvm, broker: BrokerProcess) -> None:
    """The client looks for idle connections as part of its I/O, and so only while there is other
    traffic."""
    producer = jvm.producer(broker.bootstrap, connections_max_idle_ms=1500)
    connected(jvm, broker)
    producer.send(jvm.record("t", "hello")).get()
    assert jvm.states(broker.port) == [ESTABLISHED] * 2, "bootstrap, data"

    def sent() -> bool:
        producer.send(jvm.record("t", "hello")).get()
        return jvm.states(broker.port) == [ESTABLISHED]

    eventually(sent, "the idle one is closed", lambda: jvm.states(broker.port))
    assert value(broker, "kafka_network_socketserver_expiredconnectionskilledcount") == 0


def test_the_broker_closes_what_is_idle_and_the_client_is_left_in_close_wait(
    jvm: Jvm, zookeeper: ZooKeeper, brokers: Brokers
) -> None:
    settings = {"highwater_metrics_port": str(fresh_port()), "connections_max_idle_ms": "1500"}
    broker = brokers(zookeeper.fresh_path(), **settings).serving()
    produce(jvm, broker, "t")
    consumer = jvm.consumer(broker.bootstrap, auto_offset_reset="earliest")
    consumer.assign(jvm.array(jvm.partition("t", 0)))  # no group: only `poll` does any I/O
    eventually(
        lambda: consumer.poll(jvm.seconds(0.2)).count() == 1,
        "the record",
        lambda: jvm.states(broker.port),
    )
    count = len(jvm.states(broker.port))
    wait(jvm, broker, [CLOSE_WAIT] * count, "closed by the broker, and not by who does not poll")
    expired = value(broker, "kafka_network_socketserver_expiredconnectionskilledcount")
    assert expired >= count, "the broker says that it did (other brokers' may be among them)"
    consumer.close()
    wait(jvm, broker, [], "closed at last")
