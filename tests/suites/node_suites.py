"""The suites of clients for Node.js: kafkajs, run by jest, and @platformatic/kafka."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from pathlib import Path

from highwater.cluster.processes.apache import home
from highwater.cluster.processes.zookeeper_process import find_java
from tests.suites.result import Result, from_junit
from tests.suites.running import TIME_LIMIT_S, CannotRun, Suite, checkout, cluster_of, command, need

KAFKAJS, PLATFORMATIC = "2.2.4", "2.9.0"
_NODE = 22
"""What @platformatic/kafka's tests need; npm has it as a package of each platform."""
_QUIET = ("--ignore-scripts", "--no-audit", "--no-fund")


def kafkajs(suite: Suite, left_out: str, source: Path | None, work: Path) -> list[Result]:
    """Its tests have localhost:9092, 9095 and 9098 written in them."""
    tests = checkout(suite, source, work)
    npm = need("npm", "install Node.js 14 or later")
    if not (tests / "node_modules").exists():
        command(npm, "install", *_QUIET, cwd=tests)
    _grow_topics_by_jars(tests / "scripts" / "addPartitions.sh", suite.ports[0])
    report = work / "results.xml"
    report.unlink(missing_ok=True)
    env = {
        **os.environ, "KAFKA_VERSION": "2.4", "NODE_ENV": "test", "HOST_IP": "localhost",
        "KAFKAJS_DEBUG_PROTOCOL_BUFFERS": "1", "JEST_JUNIT_OUTPUT_DIR": str(work),
        "JEST_JUNIT_OUTPUT_NAME": report.name, "JEST_JUNIT_CLASSNAME": "{classname}",
        "JEST_JUNIT_TITLE": "{title}",
    }  # fmt: skip
    words = ["node_modules/.bin/jest", "--ci", "--forceExit", "--maxWorkers=2", "--no-watchman"]
    words += ["--testNamePattern", f"^(?!.*({left_out})|({left_out}))"]
    with cluster_of(suite, work / "cluster", address=lambda _, port: f"localhost:{port}"):
        done = subprocess.run(
            words, cwd=tests, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            check=False, timeout=TIME_LIMIT_S,
        )  # fmt: skip
    if not report.exists():
        said = (done.stderr or done.stdout)[-1000:]
        raise CannotRun(f"jest ended with code {done.returncode}: {said}")
    # jest counts what its pattern leaves out as skipped
    name = re.compile(left_out)
    return [r for r in from_junit(report) if not name.search(r.test.replace("::", " "))]


def _grow_topics_by_jars(script: Path, port: int) -> None:
    """Its script calls Kafka's tool in a container; ours calls it in the oracle's jars."""
    script.write_text(
        f"#!/bin/sh\nexec {find_java()} -XX:TieredStopAtLevel=1 -cp '{home()}/libs/*'"
        f" org.apache.kafka.tools.TopicCommand --bootstrap-server localhost:{port}"
        ' --alter --topic "$TOPIC" --partitions "$PARTITIONS"\n'
    )
    script.chmod(0o755)


def platformatic(suite: Suite, left_out: str, source: Path | None, work: Path) -> list[Result]:
    """The tests of its clients, which have localhost:9011 written in them, and 9001 for a broker
    that is alone."""
    tests = checkout(suite, source, work)
    machine = "arm64" if platform.machine() in ("arm64", "aarch64") else "x64"
    node = f"node-{sys.platform}-{machine}"
    npm = need("npm", "install Node.js 20 or later")
    command(npm, "install", *_QUIET, "--no-save", f"{node}@{_NODE}", cwd=tests)
    helpers = tests / "test" / "helpers.ts"
    helpers.write_text(helpers.read_text().replace("localhost:9001", "localhost:9011"))
    report = work / "results.xml"
    report.unlink(missing_ok=True)
    folders = [tests / "test" / "clients" / kind for kind in ("admin", "consumer", "producer")]
    files = [str(file) for folder in folders for file in sorted(folder.glob("*.test.ts"))]
    words = [
        str(tests / "node_modules" / node / "bin" / "node"), "--test", "--test-concurrency=1",
        "--test-reporter=junit", f"--test-reporter-destination={report}",
        f"--test-skip-pattern={left_out}", *files,
    ]  # fmt: skip
    env = {**os.environ, "KAFKA_VERSION": "8.1.0"}  # of Confluent, which is 4.1 of Apache
    with cluster_of(suite, work / "cluster", address=lambda _, port: f"localhost:{port}"):
        done = subprocess.run(
            words, cwd=tests, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            check=False, timeout=TIME_LIMIT_S,
        )  # fmt: skip
    if not report.exists():
        raise CannotRun(f"node ended with code {done.returncode}: {done.stderr[-1000:]}")
    return from_junit(report)
