"""The image highwater/cluster: told its ports by a call or by the environment."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from highwater.agent.client import ControlError
from highwater.cluster.ports import free_ports
from tests.cluster_image import IMAGE, PORTS, build, container, docker, health, unpacked_mb

pytestmark = [pytest.mark.integration, pytest.mark.compose, pytest.mark.timeout(400)]


@pytest.fixture(scope="module", autouse=True)
def image() -> None:
    build()


def test_it_waits_for_its_ports_then_serves_breaks_and_verifies(kcat: Callable[..., Any]) -> None:
    with container() as c:
        for wrong, said in ((["localhost"], "no HOST:PORT"), ([], "less than 1")):
            with pytest.raises(ControlError, match=said):
                c.control.call("POST", "/v1/cluster", {"advertised": wrong})
        with pytest.raises(ControlError, match="POST /v1/cluster starts it"):
            c.control.status()
        c.start_cluster()
        with pytest.raises(ControlError, match="runs already"):
            c.start_cluster()
        assert c.control.status()["bootstrap"] == ",".join(c.advertised)
        c.control.create_topic("orders")
        history = c.control.call("POST", "/v1/history", {})["history"]
        client = {"does": "produce", "topic": "orders"}
        name = c.control.call("POST", f"/v1/history/{history}/clients", client)["name"]
        fault = c.control.fault("kill", "leader of orders-0")
        c.control.wait(f"leader of orders-0 changed since {fault['id']}")
        outside = kcat(
            "-P", "-b", ",".join(c.advertised), "-t", "orders", "-X", "acks=all", stdin="x\n"
        )
        assert outside.returncode == 0, outside.stderr
        c.control.end_fault(fault["id"])
        c.control.call("DELETE", f"/v1/history/{history}/clients/{name}")
        verdict = c.control.call("POST", f"/v1/history/{history}/check", {"topic": "orders"})
        assert verdict["story"] == ""
        assert verdict["read"] > verdict["acknowledged"] > 0
        assert docker("exec", c.name, "id", "-u") == "1000"
        look = "from highwater.kafka.wire.compiled import compiled; print(compiled())"
        assert docker("exec", c.name, "python", "-I", "-c", look) == "True"
        seen = docker("logs", c.name) + docker("top", c.name) + docker("exec", c.name, "env")
        assert c.token not in seen.replace(f"HIGHWATER_CONTROL_TOKEN={c.token}", "")


def test_a_plain_run_on_known_ports_serves_by_itself(kcat: Callable[..., Any]) -> None:
    ports = free_ports(4)
    publish = [f"127.0.0.1:{port}:{own}" for port, own in zip(ports, PORTS, strict=True)]
    advertised = ",".join(f"localhost:{port}" for port in ports[1:])
    with container(publish, HIGHWATER_ADVERTISED=advertised, HIGHWATER_CONTROL_TOKEN="") as c:
        assert health(c.name) == "healthy", "which is when it serves"
        assert c.token not in docker("logs", c.name)
        done = kcat("-L", "-b", advertised)
        assert all(f"at {address}" in done.stdout for address in c.advertised), done.stdout
        assert set(c.control.status()["members"]) == {
            "zookeeper",
            *(f"broker-{n}" for n in (1, 2, 3)),
        }
        c.control.fault("kill", "broker-2")
        assert docker("exec", c.name, "python", "-m", "highwater.agent.container", "healthy")
        began = time.monotonic()
        docker("stop", c.name)
        assert time.monotonic() - began < 8
        assert docker("inspect", "--format", "{{.State.ExitCode}}", c.name) == "0"


def test_what_cannot_be_is_one_line() -> None:
    with pytest.raises(AssertionError, match="token needs 16 printable"):
        docker("run", "--rm", "-e", "HIGHWATER_CONTROL_TOKEN=short", "highwater/cluster")
    with pytest.raises(AssertionError, match="'localhost' is no HOST:PORT"):
        docker("run", "--rm", "-e", "HIGHWATER_ADVERTISED=localhost", "highwater/cluster")


LOOK = """
import json, pathlib, shutil, ssl
print(json.dumps({
    "authorities": ssl.create_default_context().cert_store_stats()["x509_ca"],
    "byte code": pathlib.Path(json.__cached__).exists(),
    "programs": [*filter(shutil.which, ("apt", "gcc", "perl", "pip", "cat", "ls", "sh"))],
    "packages": [
        line[9:] for line in open("/var/lib/dpkg/status") if line.startswith("Package: ")
    ],
}))
"""


def test_it_has_what_a_cluster_needs_and_no_more() -> None:
    assert unpacked_mb() <= 190
    words = ("run", "--rm", "--entrypoint", "python", IMAGE, "-I", "-c", LOOK)
    found = json.loads(docker(*words))
    assert found["authorities"] > 0
    assert found["byte code"], "else each start compiles the standard library"
    assert found["programs"] == ["cat", "ls", "sh"]
    # by these names, programs look for known vulnerabilities
    packages = {name.strip() for name in found["packages"]}
    assert {"base-files", "libc6", "libssl3t64"} <= packages
    assert not {"apt", "perl-base"} & packages
