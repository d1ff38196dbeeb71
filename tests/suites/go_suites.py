"""The suites of clients in Go: their tests come with their modules."""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

from tests.suites.result import Result, from_go
from tests.suites.running import (
    TIME_LIMIT_S,
    CannotRun,
    Suite,
    cluster_of,
    command,
    need,
)

FRANZ_GO, SARAMA, TOXIPROXY, KAFKA_GO = "v1.22.2", "v1.61.1", "v2.5.0", "v0.4.51"
_TOXIPROXY_PORT = 28474
_FUNCTIONAL = (
    "^Test(Func|Consumer.*(Follower|HighWater|Batch|Deadlock)|VersionMatrix|ReadOnly|Interceptors)"
)


def _go_module(folder: Path, *modules: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "go.mod").write_text("module suites\n\ngo 1.24\n")
    command(need("go", "install Go 1.24 or later"), "get", *modules, cwd=folder)


def _go_test(
    folder: Path, package: str, left_out: str, env: dict[str, str], *more: str
) -> list[Result]:
    words = ["go", "test", "-json", "-count=1", f"-timeout={TIME_LIMIT_S}s", *more]
    done = subprocess.run(
        [*words, f"-skip={left_out}", package], cwd=folder,
        env={**os.environ, "GOFLAGS": "-mod=mod", **env}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    return from_go([*done.stderr.splitlines(), *done.stdout.splitlines()])


def franz_go(suite: Suite, left_out: str, source: Path | None, work: Path) -> list[Result]:
    module = "github.com/twmb/franz-go"
    _go_module(work, f"{module}@{suite.version}", f"{module}/pkg/kgo@{suite.version}")
    with cluster_of(suite, work / "cluster") as cluster:
        env = {"KGO_SEEDS": cluster.bootstrap_servers, "KGO_TEST_RECORDS": "50000"}
        return _go_test(work, f"{module}/pkg/kgo", left_out, env)


def kafka_go(suite: Suite, left_out: str, source: Path | None, work: Path) -> list[Result]:
    """Its tests have localhost:9092 written in them; its own CI leaves out `nettest`, too."""
    module = "github.com/segmentio/kafka-go"
    _go_module(work, f"{module}@{suite.version}")
    with cluster_of(suite, work / "cluster", address=lambda _, port: f"localhost:{port}"):
        env = {"KAFKA_VERSION": "2.7.0", "KAFKA_SKIP_NETTEST": "1"}
        return [
            result
            for package in (module, f"{module}/compress", f"{module}/topics")
            for result in _go_test(work, package, left_out, env)
        ]


def sarama(suite: Suite, left_out: str, source: Path | None, work: Path) -> list[Result]:
    """Its clients reach brokers by toxiproxy, at the ports from 29091 on."""
    module, toxiproxy = "github.com/IBM/sarama", "github.com/Shopify/toxiproxy/v2"
    _go_module(work, f"{module}@{suite.version}", f"{toxiproxy}@{TOXIPROXY}")
    server = work / "bin" / "server"
    build = {"GOBIN": str(server.parent), "GOFLAGS": "-mod=mod"}
    command("go", "install", f"{toxiproxy}/cmd/server", cwd=work, env=build)
    with (
        cluster_of(
            suite, work / "cluster", address=lambda number, _: f"127.0.0.1:{29090 + number}"
        ) as cluster,
        subprocess.Popen([server, "-port", f"{_TOXIPROXY_PORT}"], stdout=-3, stderr=-3) as proxy,
    ):
        try:
            for number in cluster.cluster.brokers:
                _add_proxy(f"kafka{number}", 29090 + number, cluster.cluster.address(number))
            env = {
                "TOXIPROXY_ADDR": f"http://127.0.0.1:{_TOXIPROXY_PORT}",
                "KAFKA_VERSION": "3.6.0",
            }
            return _go_test(work, module, left_out, env, "-tags=functional", f"-run={_FUNCTIONAL}")
        finally:
            proxy.terminate()


def _add_proxy(name: str, port: int, upstream: tuple[str, int]) -> None:
    body = {
        "name": name,
        "listen": f"127.0.0.1:{port}",
        "upstream": f"{upstream[0]}:{upstream[1]}",
        "enabled": True,
    }
    url = f"http://127.0.0.1:{_TOXIPROXY_PORT}/proxies"
    deadline = time.monotonic() + 10
    while True:
        try:
            urllib.request.urlopen(url, json.dumps(body).encode(), timeout=5).close()
            return
        except urllib.error.HTTPError as error:
            said = error.read().decode(errors="replace")
            raise CannotRun(f"toxiproxy cannot listen on {body['listen']}: {said}") from error
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
