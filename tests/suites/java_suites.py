"""Kafka's own command-line tools, one after the other, each judged by its exit code and its words;
and Kafka Streams.

A step's words are split at spaces; `{at}` stands for the bootstrap servers, `{folder}` for a folder
with the files of `_FILES`.  Later steps use what earlier ones have made.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from highwater.cluster.processes.apache import VERSION, tool
from highwater.cluster.processes.zookeeper_process import find_java
from tests.integration.process.app_runs import compiled, streams_libs, write_log4j
from tests.suites.result import FAILED, PASSED, NoResults, Result
from tests.suites.running import Suite, cluster_of

JAVA_TOOLS = VERSION
_LIMIT_S = 60
TOOLS, ADMIN = "org.apache.kafka.tools.", "kafka.admin."
_PARTITIONS = [{"topic": "orders", "partition": n} for n in range(6)]
_FILES = {
    "records.json": {"version": 1, "partitions": [{**_PARTITIONS[0], "offset": 2}]},
    "topics.json": {"version": 1, "topics": [{"topic": "orders"}]},
    "move.json": {
        "version": 1,
        "partitions": [{**place, "replicas": [3, 1]} for place in _PARTITIONS[:2]],
    },
    "elect.json": {"partitions": _PARTITIONS[:2]},
    "client.properties": "",
}


@dataclass(frozen=True, slots=True)
class Step:
    name: str
    main: str
    words: str
    says: str
    """A regular expression that its output must hold, error output included."""
    stdin: str = ""
    code: int = 0
    tries: int = 1
    """For a state that comes a moment later."""
    version: str = VERSION
    beside: bool = False
    """Whether the next steps begin while it runs."""


def _steps() -> Iterator[Step]:
    yield from _about_topics()
    yield from _about_records()
    yield from _about_groups()
    yield from _about_partitions()
    yield from _about_settings()


def _about_topics() -> Iterator[Step]:
    topics, at = TOOLS + "TopicCommand", "--bootstrap-server {at} "
    of = "--topic orders"
    create = f"--create {of} --partitions 3 --replication-factor 3"
    yield Step("topics: create", topics, at + create, "Created topic orders")
    yield Step("topics: create again", topics, at + create, "TopicExistsException", code=1)
    yield Step("topics: create, unless there", topics, f"{at}{create} --if-not-exists", "^$")
    yield Step(
        "topics: create with places", topics,
        at + "--create --topic placed --replica-assignment 1:2,2:3,3:1 --config retention.ms=60000",
        "Created topic placed",
    )  # fmt: skip
    yield Step(
        "topics: describe", topics, f"{at}--describe --topic placed",
        r"PartitionCount: 3\s+ReplicationFactor: 2\s+Configs:.*retention\.ms=60000"
        r"[^$]*Partition: 1\s+Leader: 2\s+Replicas: 2,3\s+Isr: [23],[23]",
    )  # fmt: skip
    yield Step(
        "topics: describe all", topics, f"{at}--describe --exclude-internal", "Topic: orders"
    )
    yield Step("topics: add partitions", topics, f"{at}--alter {of} --partitions 6", "^$")
    yield Step(
        "topics: fewer partitions", topics, f"{at}--alter {of} --partitions 2",
        "InvalidPartitionsException", code=1,
    )  # fmt: skip
    yield Step("topics: list", topics, f"{at}--list", r"(?m)^orders$[^$]*^placed$")
    for mark in ("under-replicated", "unavailable", "under-min-isr", "at-min-isr"):
        # with two replicas, and as many wanted in sync, `placed` is at its least
        here = "Topic: placed" if mark == "at-min-isr" else "^$"
        words = f"{at}--describe --{mark}-partitions --exclude-internal"
        yield Step(f"topics: {mark}", topics, words, here)
    words = f"{at}--describe --topics-with-overrides"
    yield Step("topics: with overrides", topics, words, "Topic: placed")
    yield Step("topics: delete", topics, f"{at}--delete --topic placed", "^$")
    yield Step(
        "topics: describe what is not there", topics, f"{at}--describe --topic placed",
        "does not exist as expected", code=1, tries=5,
    )  # fmt: skip


def _about_records() -> Iterator[Step]:
    at, to = "--bootstrap-server {at} ", "--topic orders"
    producer, consumer = "kafka.tools.ConsoleProducer", TOOLS + "consumer.ConsoleConsumer"
    words = "--property parse.key=true --property key.separator=: --compression-codec "
    for codec in ("none", "gzip", "lz4", "zstd", "snappy"):
        lines = "".join(f"{codec}{n}:value{n}\n" for n in range(20))
        said = f"{at}{to} {words}{codec}"
        yield Step(f"console producer: {codec}", producer, said, "^>*$", stdin=lines)
    yield Step(
        "console consumer: from the beginning", consumer,
        f"{at}{to} --from-beginning --max-messages 100 --timeout-ms 20000 --group readers"
        " --property print.key=true --property print.partition=true",
        r"Partition:\d\s+zstd7\s+value7[^$]*Processed a total of 100 messages",
    )  # fmt: skip
    yield Step(
        "console consumer: from an offset", consumer,
        f"{at}{to} --partition 0 --offset 1 --max-messages 1 --timeout-ms 20000",
        r"value\d+\s+Processed a total of 1 messages",
    )  # fmt: skip
    offsets = TOOLS + "GetOffsetShell"
    for when in ("latest", "earliest", "-3", "1"):
        yield Step(f"get offsets: {when}", offsets, f"{at}{to} --time {when}", r"orders:5:\d*")
    yield Step(
        "producer perf test", TOOLS + "ProducerPerformance",
        "--topic perf --num-records 20000 --record-size 100 --throughput -1 --producer-props"
        " bootstrap.servers={at} acks=all compression.type=lz4",
        "20000 records sent, .* ms 99.9th",
    )  # fmt: skip
    yield Step(
        "producer perf test: transactions", TOOLS + "ProducerPerformance",
        "--topic perf --num-records 5000 --record-size 100 --throughput 5000 --transactional-id"
        " perf --transaction-duration-ms 100 --producer-props bootstrap.servers={at}",
        "5000 records sent, .* ms 99.9th",
    )  # fmt: skip
    yield Step(
        "consumer perf test", TOOLS + "ConsumerPerformance",
        at + "--topic perf --messages 25000 --timeout 20000", r"2\.\d+, [\d.]+, 25000, ",
    )  # fmt: skip
    yield Step(
        "verifiable producer", TOOLS + "VerifiableProducer",
        at + "--topic verifiable --max-messages 500 --acks -1 --throughput -1",
        '"name":"tool_data","sent":500,"acked":500',
    )  # fmt: skip
    yield Step(
        "verifiable consumer", TOOLS + "VerifiableConsumer",
        at + "--topic verifiable --group-id verifiers --max-messages 500 --reset-policy earliest",
        '"name":"offsets_committed".*"success":true[^$]*"name":"shutdown_complete"',
    )  # fmt: skip
    yield Step(
        "end-to-end latency", TOOLS + "EndToEndLatency", "{at} latency 200 all 100",
        r"Avg latency: [\d.]+ ms[^$]*Percentiles: 50th",
    )  # fmt: skip
    yield Step(
        "delete records", TOOLS + "DeleteRecordsCommand",
        at + "--offset-json-file {folder}/records.json", r"partition: orders-0\s+low_watermark: 2",
    )  # fmt: skip
    words = f"{at}--topic-partitions orders:0 --time earliest"
    yield Step("get offsets: after the deletion", offsets, words, "orders:0:2")
    yield Step(
        "replica verification", TOOLS + "ReplicaVerificationTool",
        "--broker-list {at} --topics-include orders --report-interval-ms 1000 --time -2",
        r"max lag is 0 for partition orders-\d at offset \d+ among 6 partitions",
    )  # fmt: skip


def _about_groups() -> Iterator[Step]:
    groups, at = TOOLS + "consumer.group.ConsumerGroupCommand", "--bootstrap-server {at} "
    of = "--group readers"
    yield Step("groups: list", groups, f"{at}--list", r"(?m)^readers$")
    yield Step("groups: list by state", groups, f"{at}--list --state Empty", r"readers\s+Empty")
    yield Step("groups: describe", groups, f"{at}--describe {of}", r"readers\s+orders\s+5\s+\d+")
    yield Step("groups: describe all", groups, f"{at}--describe --all-groups", r"verifiers")
    yield Step(
        "groups: describe state", groups, f"{at}--describe {of} --state",
        r"readers\s+[\w.]+:\d+\s+\(\d\)\s+Empty\s+0",
    )  # fmt: skip
    words = f"{at}--describe {of} --members --verbose"
    yield Step("groups: describe members", groups, words, "has no active members")
    reset = f"{at}{of} --reset-offsets --topic orders:1"
    yield Step(
        "groups: reset, to try", groups, f"{reset} --to-earliest --dry-run",
        r"readers\s+orders\s+1\s+0",
    )  # fmt: skip
    for how in (
        "to-earliest", "to-latest", "to-offset 3", "shift-by -1", "to-current",
        "by-duration PT1H", "to-datetime 2020-01-01T00:00:00.000",
    ):  # fmt: skip
        words = f"{reset} --{how} --execute"
        yield Step(f"groups: reset {how}", groups, words, r"readers\s+orders\s+1\s+\d+")
    yield Step(
        "groups: delete offsets", groups, f"{at}{of} --delete-offsets --topic orders:1",
        r"orders\s+1\s+Successful",
    )  # fmt: skip
    words = f"{at}--delete {of}"
    yield Step("groups: delete", groups, words, r"\('readers'\) was successful")
    yield Step(
        "groups: describe what is not there", groups, f"{at}--describe {of}",
        "Consumer group 'readers' does not exist",
    )  # fmt: skip
    resetter = TOOLS + "StreamsResetter"
    yield Step(
        "streams application reset", resetter,
        at + "--application-id verifiers --input-topics verifiable --to-earliest",
        "Topic: verifiable Partition: 0 Offset: 0",
    )  # fmt: skip


def _about_partitions() -> Iterator[Step]:
    at, move = "--bootstrap-server {at} ", TOOLS + "reassign.ReassignPartitionsCommand"
    yield Step(
        "reassign: generate", move,
        at + "--generate --topics-to-move-json-file {folder}/topics.json --broker-list 3,2,1",
        r'Proposed partition reassignment configuration\s+\{"version":1,"partitions":',
    )  # fmt: skip
    by = at + "--reassignment-json-file {folder}/move.json"
    yield Step(
        "reassign: execute", move, f"{by} --execute --throttle 50000000",
        "Successfully started partition reassignments for orders-0,orders-1",
    )  # fmt: skip
    yield Step("reassign: list", move, f"{at}--list", "[Pp]artition reassignments")
    yield Step(
        "reassign: verify", move, f"{by} --verify",
        r"Reassignment of partition orders-1 is completed[^$]*Clearing topic-level throttles",
        tries=10,
    )  # fmt: skip
    words = f"{by} --cancel"
    yield Step("reassign: cancel", move, words, "None of the specified partition moves are active")
    elect = TOOLS + "LeaderElectionCommand"
    yield Step(
        "leader election: preferred", elect,
        at + "--election-type preferred --path-to-json-file {folder}/elect.json",
        "(Successfully completed leader election|Valid replica already elected)",
    )  # fmt: skip
    yield Step(
        "leader election: all", elect, f"{at}--election-type preferred --all-topic-partitions",
        "^$|Successfully completed leader election",  # it names those alone that change,
    )  # fmt: skip
    yield Step(
        "leader election: unclean", elect,
        at + "--election-type unclean --topic orders --partition 2",
        "Valid replica already elected for partitions orders-2",
    )  # fmt: skip
    directories = TOOLS + "LogDirsCommand"
    yield Step(
        "log dirs", directories, f"{at}--describe --topic-list orders --broker-list 1,2,3",
        r'"brokers":\[\{.*"partition":"orders-\d","size":\d+,"offsetLag":0,"isFuture":false',
    )  # fmt: skip
    transactions = TOOLS + "TransactionsCommand"
    yield Step("transactions: list", transactions, f"{at}list", r"perf\s+\d\s+\d+\s+CompleteCommit")
    words = f"{at}describe --transactional-id perf"
    yield Step("transactions: describe", transactions, words, r"\d+\s+0\s+CompleteCommit")
    yield Step(
        "transactions: describe producers", transactions,
        at + "describe-producers --topic perf --partition 0", r"ProducerId\s+ProducerEpoch",
    )  # fmt: skip
    yield Step(
        "transactions: find hanging", transactions, f"{at}find-hanging --broker-id 1",
        r"Topic\s+Partition\s+ProducerId",
    )  # fmt: skip


def _about_settings() -> Iterator[Step]:
    at, configs = "--bootstrap-server {at} ", ADMIN + "ConfigCommand"
    kinds = (
        ("topic", "--entity-type topics --entity-name orders", "retention.ms=3600000"),
        ("broker", "--entity-type brokers --entity-name 1", "log.cleaner.threads=2"),
        ("all brokers", "--entity-type brokers --entity-default", "log.cleaner.threads=2"),
        ("user", "--entity-type users --entity-name alice", "producer_byte_rate=1024000"),
        ("all clients", "--entity-type clients --entity-default", "consumer_byte_rate=1048576"),
        ("address", "--entity-type ips --entity-name 127.0.0.9", "connection_creation_rate=90"),
        (
            "user's client", "--entity-type users --entity-name a --entity-type clients"
            " --entity-name c", "request_percentage=50",
        ),
    )  # fmt: skip
    for what, entity, value in kinds:
        name = value.partition("=")[0]
        words = f"{at}--alter {entity} --add-config {value}"
        yield Step(
            f"configs: set for a {what}", configs, words, "Completed updating (default )?config"
        )
        shown = value.replace(".", r"\.")
        words = f"{at}--describe {entity}"
        yield Step(f"configs: of a {what}", configs, words, rf"{shown}(\.0)?\b", tries=5)
        words = f"{at}--alter {entity} --delete-config {name}"
        yield Step(
            f"configs: unset for a {what}", configs, words, "Completed updating (default )?config"
        )
    user = "--entity-type users --entity-name bob"
    words = f"{at}--alter {user} --add-config SCRAM-SHA-256=[iterations=4096,password=secret]"
    yield Step("configs: a SCRAM user", configs, words, "Completed updating (default )?config")
    words = f"{at}--describe {user}"
    yield Step("configs: SCRAM users", configs, words, "SCRAM-SHA-256=iterations=4096")
    words = f"{at}--describe --entity-type brokers --entity-name 2 --all"
    yield Step("configs: all of a broker", configs, words, r"log\.retention\.hours=168")
    words = f"{at}--describe --entity-type broker-loggers --entity-name 1"
    yield Step("configs: loggers", configs, words, "=(INFO|WARN|DEBUG)")
    words = f"{at}--alter --entity-type topics --entity-name orders --add-config retention.ms=x"
    yield Step("configs: a wrong value", configs, words, "InvalidConfigurationException", code=1)
    acls = ADMIN + "AclCommand"
    refused = "SecurityDisabledException: No Authorizer is configured"
    yield Step("acls: list", acls, f"{at}--list", refused, code=1)
    add = "--add --allow-principal User:bob --operation Read --topic orders"
    yield Step("acls: add", acls, at + add, refused, code=1)
    versions = ADMIN + "BrokerApiVersionsCommand"
    words = r"\(id: 3 rack: null\) -> \([^$]*Produce\(0\): \d to \d+ \[usable: \d+\]"
    yield Step("broker API versions", versions, at, words)
    features = TOOLS + "FeatureCommand"
    yield Step("features: describe", features, f"{at}describe", r"^\s*(Feature: .*)?$")
    cluster = TOOLS + "ClusterTool"
    yield Step("cluster: id", cluster, f"cluster-id {at}", r"Cluster ID: [\w-]{22}")
    words = f"unregister {at}--id 9"
    yield Step(
        "cluster: unregister", cluster, words, "does not support the broker unregistration API"
    )
    yield Step(
        "dump log", "kafka.tools.DumpLogSegments",
        "--files {data}/orders-2/00000000000000000000.log --print-data-log",
        r"baseOffset: 0 .*isvalid: true[^$]*payload: value",
    )  # fmt: skip


def java_tools(suite: Suite, left_out: str, source: Path | None, work: Path) -> list[Result]:
    return run_steps(_steps(), suite, left_out, work)


def run_steps(steps: Iterable[Step], suite: Suite, left_out: str, work: Path) -> list[Result]:
    for name, said in _FILES.items():
        (work / name).write_text(said if isinstance(said, str) else json.dumps(said))
    with cluster_of(suite, work / "cluster") as cluster, ThreadPoolExecutor() as pool:
        given = {
            "at": cluster.bootstrap_servers, "folder": str(work),
            "data": str(work / "cluster" / "broker-1" / "data"),
        }  # fmt: skip
        ends: list[Future[Result]] = []
        for step in steps:
            if not re.search(left_out, step.name):
                ends.append(pool.submit(_run, step, given))
                if not step.beside:
                    ends[-1].result()
        return [end.result() for end in ends]


def streams(suite: Suite, left_out: str, source: Path | None, work: Path) -> list[Result]:
    """A program of our own on Kafka Streams, which judges each of its cases."""
    classes = compiled(Path(__file__).with_name("StreamsCases.java"), work / "classes")
    log4j, state = write_log4j(work / "log4j.properties"), work / "state"
    shutil.rmtree(state, ignore_errors=True)
    with cluster_of(suite, work / "cluster") as cluster:
        words = [
            find_java(), "-Xmx512m", "-XX:TieredStopAtLevel=1",
            f"-Dlog4j.configuration=file:{log4j}", "-cp", f"{streams_libs()}/*:{classes}",
            "StreamsCases", cluster.bootstrap_servers, str(state),
        ]  # fmt: skip
        started = time.monotonic()
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=600)
        seconds = time.monotonic() - started
    cases = re.findall(r"(?m)^(passed|failed) ([^:\n]+)(.*)$", done.stdout)
    if done.returncode != 0 or not cases:
        raise NoResults(f"code {done.returncode}: {(done.stdout + done.stderr)[-2000:]}")
    return [
        Result(name, outcome, seconds / len(cases), told + done.stderr[-2000:])
        for outcome, name, told in cases
        if not re.search(left_out, name)
    ]


def _run(step: Step, given: dict[str, str]) -> Result:
    words = [word.format(**given) for word in step.words.split()]
    started = time.monotonic()
    for _ in range(step.tries):
        code, said = _said(step, words)
        if code == step.code and re.search(step.says, said):
            return Result(step.name, PASSED, time.monotonic() - started)
        time.sleep(1)
    told = f"{step.main} {' '.join(words)}\ncode {code}, not {step.code}, or not {step.says!r}\n"
    return Result(step.name, FAILED, time.monotonic() - started, told + said[-2500:])


def _said(step: Step, words: list[str]) -> tuple[int | None, str]:
    try:
        done = tool(step.main, words, timeout_s=_LIMIT_S, stdin=step.stdin, version=step.version)
    except subprocess.TimeoutExpired as error:
        parts = (error.stdout, error.stderr)
        texts = (p.decode(errors="replace") if isinstance(p, bytes) else p or "" for p in parts)
        return None, f"{''.join(texts)}\nno end within {_LIMIT_S} s"
    return done.returncode, f"{done.stdout}{done.stderr}".strip()
