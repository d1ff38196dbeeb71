"""librdkafka's own tests: a program that is built with the library, and told which tests to run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from highwater.cluster.processes.apache import home
from highwater.cluster.processes.zookeeper_process import find_java
from tests.suites.result import FAILED, PASSED, SKIPPED, NoResults, Result
from tests.suites.running import Suite, checkout, cluster_of, command, need, work_folder

LIBRDKAFKA = "2.15.0"
TEST_LIMIT_S = 240
"""Of the tests of one number, which run in a process of their own."""
WHOLE, WHOLE_LIMIT_S = "_share_consumer", 900
"""These are run whole: without their slow parts, as all others are, nearly nothing is left."""
_AT_ONCE = 2
_TESTS = re.compile(r"^    _TEST\((\w+),\s*([^;]*?)\)(?=,\n(?:    _TEST|#|\n|    /))", re.M | re.S)
_ROW = re.compile(r"^\|\s*(\w+)\s*\|\s*(\w+)\s*\|\s*([\d.]+)s\s*\|(.*)$")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_OUTCOMES = {"PASSED": PASSED, "FAILED": FAILED, "SKIPPED": SKIPPED, "RUNNING": FAILED}
_SCRIPTS = {
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-acls": "kafka.admin.AclCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
}


@dataclass(frozen=True, slots=True)
class CTest:
    name: str
    scenario: str

    @property
    def number(self) -> str:
        return self.name.partition("_")[0]


def broker_tests(test_c: str) -> Iterator[CTest]:
    """The tests of its table that speak to a broker: those that are not marked local or manual."""
    for name, marks in _TESTS.findall(test_c):
        if "TEST_F_LOCAL" not in marks and "TEST_F_MANUAL" not in marks:
            scenario = re.search(r'\.scenario\s*=\s*"([\w,]+)"', marks)
            yield CTest(name, scenario[1].split(",")[0] if scenario else "default")


def from_summary(lines: list[str], wanted: set[str]) -> list[Result]:
    """The table at the end of its output; a test that is in none has not come to its end."""
    results = {}
    for line in lines:
        if (found := _ROW.match(_COLOUR.sub("", line))) and found[1] in wanted:
            name, state, seconds, said = found.groups()
            outcome = _OUTCOMES.get(state, FAILED)
            failed = outcome == FAILED
            end = "\n".join([said.strip(), *lines[-40:]]) if failed else ""
            results[name] = Result(name, outcome, float(seconds), end)
    for name in sorted(wanted - set(results)):
        results[name] = Result(name, FAILED, 0.0, "\n".join(lines[-40:]))
    return list(results.values())


def librdkafka_848(suite: Suite, left_out: str, source: Path | None, work: Path) -> list[Result]:
    """The same, where every consumer that names no protocol speaks that of KIP-848."""
    return librdkafka(suite, left_out, source, work, "consumer")


def librdkafka(
    suite: Suite, left_out: str, source: Path | None, work: Path, protocol: str = "classic"
) -> list[Result]:
    folder = _built(suite, source, work_folder(suite.variant_of or suite.name))
    tests = list(broker_tests((folder / "test.c").read_text()))
    if not tests:
        raise NoResults("test.c has no table of tests that is understood")
    tests = [test for test in tests if not re.search(left_out, test.name)]
    kafka = _scripts(work / "kafka")
    with_zookeeper = suite.program.name == "apache" and not suite.program.kraft
    version = "3.9.0" if with_zookeeper else "4.2.0"
    results: list[Result] = []
    for scenario in sorted({test.scenario for test in tests}):
        auto = {"auto.create.topics.enable": "false" if scenario == "noautocreate" else "true"}
        chosen = [test for test in tests if test.scenario == scenario]
        numbers = [{t.name for t in same} for _, same in groupby(chosen, lambda t: t.number)]
        with cluster_of(suite, work / "cluster" / scenario, properties=auto) as cluster:
            conf = work / "test.conf"
            conf.write_text(
                f"bootstrap.servers={cluster.bootstrap_servers}\n"
                "test.timeout.multiplier=2\n"  # 0119 starts Kafka's tools five times in 20 s
            )
            env = {
                **os.environ, "RDKAFKA_TEST_CONF": str(conf), "TEST_KAFKA_VERSION": version,
                "TEST_CONSUMER_GROUP_PROTOCOL": protocol,
                "KAFKA_PATH": str(kafka), "BROKERS": cluster.bootstrap_servers,
                "LD_LIBRARY_PATH": f"{folder.parent}/src:{folder.parent}/src-cpp",
            }  # fmt: skip

            def run(
                names: set[str], scenario: str = scenario, env: dict[str, str] = env
            ) -> list[Result]:
                return _run(folder, names, scenario, env)

            with ThreadPoolExecutor(_AT_ONCE) as pool:
                results += [result for found in pool.map(run, numbers) for result in found]
    return results


def _run(folder: Path, names: set[str], scenario: str, env: dict[str, str]) -> list[Result]:
    number = min(names).partition("_")[0]
    whole = any(WHOLE in name for name in names)
    limit_s = WHOLE_LIMIT_S if whole else TEST_LIMIT_S
    words = ["./test-runner", "-L", "-p1", *([] if whole else ["-Q"]), "-s", scenario]
    with subprocess.Popen(
        words, cwd=folder, env={**env, "TESTS": number}, text=True, errors="replace",
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as running:  # fmt: skip
        try:
            said = running.communicate(timeout=limit_s)[0]
        except subprocess.TimeoutExpired:
            running.kill()
            said = running.communicate()[0] + f"\nno end within {limit_s} s"
    return from_summary(said.splitlines(), names)


def _built(suite: Suite, source: Path | None, work: Path) -> Path:
    """The folder of the tests, in a copy of the source that is built once for each version."""
    built = work / f"source-{suite.version}"
    if not (built / "tests" / "test-runner").exists():
        need("make", "install a C compiler and make")
        shutil.rmtree(built, ignore_errors=True)
        checkout(suite, source, work).rename(built)
        command("./configure", "--disable-sasl", cwd=built)
        command("make", "-j2", "libs", cwd=built)
        command("make", "-j2", "-C", "tests", "build", cwd=built)
    return built / "tests"


def _scripts(folder: Path) -> Path:
    """Kafka's scripts that some tests call: the classes of the oracle's jars."""
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    java, jars = find_java(), f"{home()}/libs/*"
    for name, main in _SCRIPTS.items():
        script = folder / "bin" / f"{name}.sh"
        script.write_text(
            f"#!/bin/sh\nexec {java} -XX:TieredStopAtLevel=1 -cp '{jars}' {main} \"$@\"\n"
        )
        script.chmod(0o755)
    return folder
