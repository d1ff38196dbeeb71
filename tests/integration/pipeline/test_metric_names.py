"""Highwater's metrics by the names that a live Apache Kafka broker has.

One Apache broker is started with its JMX port open, made to do a little of everything, and asked
for all of its MBeans by its own JmxTool; one Highwater broker does the same and gives its page.
Every MBean of the kinds in `KINDS` has to have its series here, with the same labels.  `MISSING`
lists exactly the others, so that it cannot be wrong in either direction.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from highwater.cluster.ports import free_ports
from highwater.cluster.processes import apache
from highwater.cluster.processes.process_cluster import process_cluster
from highwater.cluster.processes.process_settings import Settings
from highwater.cluster.processes.programs import ApacheKafka, Highwater, Program
from tests.integration.robustness.test_metrics import get

pytestmark = [pytest.mark.integration, pytest.mark.apache, pytest.mark.timeout(240)]
Series = dict[str, set[str]]
"""Names, and the labels that any series of a name has."""

KINDS = (
    "brokertopicmetrics", "requestmetrics", "requestchannel", "socketserver", "processor",
    "acceptor", "kafkarequesthandlerpool", "delayedoperationpurgatory", "delayedfetchmetrics",
    "replicamanager", "partition", "log", "fetchsessioncache", "groupmetadatamanager",
    "kafkacontroller", "controllereventmanager", "controllerchannelmanager",
    "sessionexpirelistener", "zookeeperclientmetrics", "replicafetchermanager", "kafkaserver",
)  # fmt: skip
MISSING = {
    # of the controller: for KRaft or the move to it, or not counted
    "kafka_controller_controllereventmanager_eventqueuetimems",
    "kafka_controller_kafkacontroller_controllerstate",
    "kafka_controller_kafkacontroller_fencedbrokercount",
    "kafka_controller_kafkacontroller_zkmigrationstate",
    # of the controller's queues to brokers only their sum
    "kafka_controller_controllerchannelmanager_queuesize",
    "kafka_controller_controllerchannelmanager_requestrateandqueuetimems",
    # words, which a page of numbers cannot hold, and the number of metrics
    "kafka_server_kafkaserver_clusterid",
    "kafka_server_kafkaserver_yammer_metrics_count",
    "kafka_server_sessionexpirelistener_sessionstate",
    # of replicas: not counted
    "kafka_server_replicafetchermanager_failedpartitionscount",
    "kafka_server_replicamanager_failedisrupdatespersec",
    "kafka_server_replicamanager_partitionswithlatetransactionscount",
}


def mbeans(text: str) -> Series:
    """A page made of these MBeans would have these names, in the Confluent dialect."""
    found: Series = {}
    for line in text.splitlines():
        match = re.match(r"(kafka[\w.]*):(type=[^:]*):[\w.\-]+=", line)
        if match is None:
            continue
        labels = dict(part.split("=", 1) for part in match[2].split(",") if "=" in part)
        kind, name = labels.pop("type"), labels.pop("name", None)
        if name is not None and kind.lower() in KINDS:
            family = f"{match[1]}_{kind}_{name}".lower()
            family = re.sub(r"[.-]", "_", family)
            found.setdefault(family, set()).update(label.lower() for label in labels)
    return found


def series(page: str) -> Series:
    found: Series = {}
    for line in page.splitlines():
        match = re.match(r"([a-z0-9_]+)(\{.*\})? ", line)
        if match is not None:
            name = match[1].removesuffix("_oneminuterate").removesuffix("_count")
            labels = set(re.findall(r'(\w+)="', match[2] or "")) - {"quantile"}
            found.setdefault(name, set()).update(labels)
    return found


async def observe(program: Program, folder: Path, ask: Callable[[int], str]) -> str:
    """The result of `ask` on a broker that has served producers and a consumer group."""
    properties = {"offsets.topic.replication.factor": "1"}
    settings = Settings(folder, brokers=1, program=program, properties=properties, quick_end=True)

    def use_and_ask(bootstrap: str, port: int) -> str:
        at = f"--bootstrap-server {bootstrap} --topic t"
        tools = "org.apache.kafka.tools."
        for tool, options in (
            ("TopicCommand", "--create --partitions 1 --replication-factor 1"),
            ("VerifiableProducer", "--max-messages 100"),
            ("VerifiableConsumer", "--max-messages 100 --group-id g"),
        ):
            done = apache.tool(tools + tool, f"{at} {options}".split())
            assert done.returncode == 0, done.stdout + done.stderr
        return ask(port)

    async with process_cluster(settings) as cluster:
        port = cluster.metrics_port(1)
        return await trio.to_thread.run_sync(use_and_ask, cluster.bootstrap, port)


async def test_every_mbean_has_its_series(tmp_path: Path, apache_tool: object) -> None:
    jmx = free_ports(40)[-1]  # the first ones will be the cluster's
    flags = (
        "-Xmx400m", "-XX:+UseSerialGC", f"-Dcom.sun.management.jmxremote.port={jmx}",
        f"-Dcom.sun.management.jmxremote.rmi.port={jmx}",
        "-Dcom.sun.management.jmxremote.authenticate=false",
        "-Dcom.sun.management.jmxremote.ssl=false", "-Djava.rmi.server.hostname=127.0.0.1",
    )  # fmt: skip

    def listed(_: int) -> str:
        url = f"service:jmx:rmi:///jndi/rmi://127.0.0.1:{jmx}/jmxrmi"
        options = ["--jmx-url", url, "--one-time", "--report-format", "properties"]
        done = apache.tool("org.apache.kafka.tools.JmxTool", options)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def page(port: int) -> str:
        status, text = get(port, "/metrics")
        assert status == 200
        return text

    theirs = mbeans(
        await observe(ApacheKafka(apache.home(), jvm=flags), tmp_path / "theirs", listed)
    )
    ours = series(await observe(Highwater(), tmp_path / "ours", page))
    assert len(theirs) > 70, "the listing is whole"
    missing = set(theirs) - set(ours)
    assert not missing - MISSING, f"not here: {', '.join(sorted(missing - MISSING))}"
    assert not MISSING - missing, f"here after all: {', '.join(sorted(MISSING - missing))}"
    labels = {
        name: (sorted(theirs[name]), sorted(ours[name]))
        for name in sorted(set(theirs) & set(ours))
        if not theirs[name] <= ours[name]
    }
    assert labels == {}, "(Apache's labels, ours)"
