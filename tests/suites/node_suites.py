"""kafkajs's own tests, run by jest."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from highwater.cluster.processes.apache import home
from highwater.cluster.processes.zookeeper_process import find_java
from tests.suites.result import Result, from_junit
from tests.suites.running import TIME_LIMIT_S, CannotRun, Suite, checkout, cluster_of, command, need

KAFKAJS = "2.2.4"


def kafkajs(suite: Suite, left_out: str, source: Path | None, work: Path) -> list[Result]:
    """Its tests have localhost:9092, 9095 and 9098 written in them."""
    tests = checkout(suite, source, work)
    npm = need("npm", "install Node.js 14 or later")
    if not (tests / "node_modules").exists():
        options = ("--ignore-scripts", "--no-audit", "--no-fund")
        command(npm, "install", *options, cwd=tests)
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
