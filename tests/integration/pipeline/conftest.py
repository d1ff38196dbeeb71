"""Brokers for one test each (the rig of the robustness tests), and Java's Kafka clients in a JVM
that Python drives object by object: so a test sees the effect of each call on the connections.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from highwater.cluster.processes import apache
from highwater.cluster.processes.zookeeper_process import find_java
from tests.integration.missing import not_installed
from tests.integration.robustness.conftest import brokers, zookeeper

__all__ = ["brokers", "zookeeper"]


class Jvm:
    """A JVM with Kafka's client on its class path."""

    def __init__(self, gateway: Any, pid: int) -> None:
        self._gateway = gateway
        self.pid = pid
        self.kafka = gateway.jvm.org.apache.kafka
        self._open: list[Any] = []

    def _settings(self, bootstrap: str, **settings: object) -> Any:
        java = self._gateway.jvm.java.util.HashMap()
        java.put("bootstrap.servers", bootstrap)
        for name, value in settings.items():
            java.put(name.replace("_", "."), str(value))
        return java

    def producer(self, bootstrap: str, **settings: object) -> Any:
        serializer = self.kafka.common.serialization.StringSerializer
        producer = self.kafka.clients.producer.KafkaProducer(
            self._settings(bootstrap, **settings), serializer(), serializer()
        )
        self._open.append(producer)
        return producer

    def consumer(self, bootstrap: str, **settings: object) -> Any:
        deserializer = self.kafka.common.serialization.StringDeserializer
        consumer = self.kafka.clients.consumer.KafkaConsumer(
            self._settings(bootstrap, **settings), deserializer(), deserializer()
        )
        self._open.append(consumer)
        return consumer

    def record(self, topic: str, value: str) -> Any:
        return self.kafka.clients.producer.ProducerRecord(topic, value)

    def array(self, *items: Any) -> Any:
        found = self._gateway.jvm.java.util.ArrayList()
        for item in items:
            found.add(item)
        return found

    def partition(self, topic: str, number: int) -> Any:
        return self.kafka.common.TopicPartition(topic, number)

    def seconds(self, n: float) -> Any:
        return self._gateway.jvm.java.time.Duration.ofMillis(int(n * 1000))

    def states(self, port: int) -> list[str]:
        """The states of this JVM's connections to a port, sorted, under the system's names."""
        return sorted(
            c.status
            for c in psutil.Process(self.pid).net_connections("tcp")
            if c.raddr and c.raddr.port == port
        )

    def close_clients(self) -> None:
        for client in self._open:
            client.close(self.seconds(0))
        self._open.clear()


@pytest.fixture(scope="session")
def _jvm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jvm]:
    if shutil.which("mvn") is None:
        not_installed("Maven is not installed: Apache Kafka's client cannot be fetched")
    import pyspark
    from py4j.java_gateway import (  # type: ignore[import-untyped]
        GatewayParameters,
        JavaGateway,
        launch_gateway,
    )

    folder = tmp_path_factory.mktemp("jvm")
    log4j = folder / "log4j.properties"
    log4j.write_text("log4j.rootLogger=OFF\n")
    (jar,) = Path(pyspark.__file__).parent.glob("jars/py4j-*.jar")
    port, process = launch_gateway(
        jarpath=str(jar), classpath=f"{apache.home()}/libs/*",
        javaopts=["-Xmx200m", f"-Dlog4j.configuration=file:{log4j}"], java_path=find_java(),
        die_on_exit=True, return_proc=True,
    )  # fmt: skip
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auto_convert=True))
    yield Jvm(gateway, process.pid)
    gateway.shutdown()
    process.kill()
    process.wait(60)


@pytest.fixture
def jvm(_jvm: Jvm) -> Iterator[Jvm]:
    """A JVM whose clients are closed after the test."""
    yield _jvm
    _jvm.close_clients()


Brokers = Callable[..., Any]
