"""A client of the control API, and the start of an agent, by the standard library alone.

    with AgentProcess.start({"folder": "/tmp/cluster"}) as agent:
        control = Control(agent.control)
        control.create_topic("orders", partitions=3)
        fault = control.fault("kill", "leader of orders-0")
        control.wait(f"leader of orders-0 changed since {fault['id']}", within_s=10)
        control.end_fault(fault["id"])

A user's tests import this into their own process, so it must not bring a Kafka library along.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

PATIENCE_S = 300.0
"""Longer than any call: the agent itself gives up earlier, and says why."""
IDLE_S = 20.0
"""A connection idle for longer is not used again, as the agent closes idle ones after a while."""
GRACE_S = 30.0
"""How long an agent may take to end its cluster."""


class ControlError(Exception):
    """A call failed.  `kind`: bad_request, unauthorized, not_found, refused, timeout, failed or
    unreachable."""

    def __init__(self, kind: str, message: str, state: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.state = state


class Control:
    """The calls, one method each; from any number of threads.  Raises ControlError."""

    def __init__(self, url: str, token: str = "") -> None:
        """`token`: needed where the agent listens beyond loopback."""
        parts = urlsplit(url)
        if parts.scheme != "http" or parts.hostname is None or parts.port is None:
            raise ValueError(f"{url!r} is no http://HOST:PORT")
        self.url = url
        self._host, self._port = parts.hostname, parts.port
        self._headers = {"Content-Type": "application/json"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._local = threading.local()

    def call(
        self, method: str, path: str, body: Any = None, query: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Any call; gives the answer's JSON."""
        target = f"{path}?{urlencode(query)}" if query else path
        data = None if body is None else json.dumps(body).encode()
        try:
            status, answer = self._exchange(method, target, data)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise ControlError(
                "unreachable", f"the agent at {self.url} does not answer: {error or 'it closed'}"
            ) from error
        if status != 200:
            wrong = answer.get("error", {})
            message = wrong.get("message", f"{method} {path}: status {status}")
            raise ControlError(wrong.get("kind", "failed"), message, wrong.get("state"))
        return answer

    def _exchange(self, method: str, target: str, data: bytes | None) -> tuple[int, dict[str, Any]]:
        now = time.monotonic()
        if now - getattr(self._local, "used", now) > IDLE_S:
            self.close()
        connection = getattr(self._local, "connection", None)
        if connection is None:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=PATIENCE_S)
            self._local.connection = connection
        connection.request(method, target, data, self._headers)
        response = connection.getresponse()
        answer = json.loads(response.read())
        self._local.used = time.monotonic()
        return response.status, answer

    def close(self) -> None:
        """Closes this thread's connection; the next call opens another."""
        connection = getattr(self._local, "connection", None)
        if connection is not None:
            connection.close()
            self._local.connection = None

    # --- the cluster

    def status(self) -> dict[str, Any]:
        return self.call("GET", "/v1/status")

    def events(self, since: int = 0) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.call("GET", "/v1/events", query={"since": since})[
            "events"
        ]
        return found

    def mend(self) -> None:
        """Ends every fault, heals every link, starts every member that is down."""
        self.call("POST", "/v1/mend")

    def elect_first_replicas(self) -> None:
        """Makes the first replica of every partition its leader."""
        self.call("POST", "/v1/elections")

    def openapi(self) -> dict[str, Any]:
        return self.call("GET", "/v1/openapi.json")

    # --- topics

    def topics(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.call("GET", "/v1/topics")["topics"]
        return found

    def topic(self, name: str) -> dict[str, Any]:
        return self.call("GET", f"/v1/topics/{quote(name, safe='')}")

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Makes a topic; returns when every broker knows it and each partition has a leader."""
        body = {
            "name": name,
            "partitions": partitions,
            "replication_factor": replication_factor,
            "config": dict(config or {}),
        }
        return self.call("POST", "/v1/topics", body)

    def delete_topic(self, name: str) -> None:
        self.call("DELETE", f"/v1/topics/{quote(name, safe='')}")

    # --- groups and transactions

    def group(self, name: str) -> dict[str, Any]:
        """A group's state, members, coordinator and lag."""
        return self.call("GET", f"/v1/groups/{quote(name, safe='')}")

    def delete_group(self, name: str) -> None:
        self.call("DELETE", f"/v1/groups/{quote(name, safe='')}")

    def open_transactions(self) -> list[dict[str, Any]]:
        """The transactions that are neither committed nor aborted as a whole."""
        found: list[dict[str, Any]] = self.call("GET", "/v1/transactions")["open"]
        return found

    # --- faults and waits

    def fault(self, name: str, target: str = "", **fields: Any) -> dict[str, Any]:
        """Begins a fault of docs/faults.md; a field that is a word of Python ends with "_", as in
        `from_="broker-1"`.  Returns when its effect is seen."""
        entry: dict[str, Any] = {"name": name}
        if target:
            entry["target"] = target
        entry |= {k.removesuffix("_"): v for k, v in fields.items() if v is not None}
        return self.call("POST", "/v1/faults", entry)

    def get_fault(self, number: int) -> dict[str, Any]:
        """A fault as it is now; `met` (only for a fault of a link) is how many streams or messages
        it has met so far."""
        return self.call("GET", f"/v1/faults/{number}")

    def end_fault(self, number: int) -> dict[str, Any]:
        """Undoes a fault that lasts."""
        return self.call("DELETE", f"/v1/faults/{number}")

    def wait(self, until: str, within_s: float = 30) -> float:
        """Waits for what `until` says; gives the seconds that it took."""
        answer = self.call("POST", "/v1/waits", {"until": until, "within": within_s})
        return float(answer["seconds"])


class AgentProcess:
    """An agent that this process started; it ends with this process, however that ends."""

    def __init__(self, process: subprocess.Popen[bytes], first: Mapping[str, Any]) -> None:
        self._process = process
        self.control: str = first["control"]
        """The URL of its control API."""
        self.token: str = first["token"]
        """The token that its calls must carry; empty on loopback."""
        self.bootstrap: str = first["bootstrap"]
        self.seconds: float = first["seconds"]
        """How long its cluster took to start."""
        self.warnings: list[str] = first["warnings"]
        """Properties that are unknown, one line each."""

    @classmethod
    def start(cls, settings: Mapping[str, Any], *, python: str = sys.executable) -> AgentProcess:
        """Starts an agent with these settings (`highwater.agent.agent_settings`), of which only
        `folder` is needed; returns when its cluster serves.  Raises ControlError."""
        folder = Path(settings["folder"])
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "agent.log").open("ab") as log:
            process = subprocess.Popen(
                [python, "-I", "-m", "highwater.agent"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            line = json.dumps({**settings, "folder": str(folder.absolute())}).encode() + b"\n"
            with contextlib.suppress(BrokenPipeError):  # the agent's output says why it ended
                process.stdin.write(line)
                process.stdin.flush()
            first = process.stdout.readline()
        except BaseException:
            _end(process)
            raise
        try:
            told: dict[str, Any] = json.loads(first)
        except ValueError:
            told = {"error": {"message": f"it ended without a word; see {folder / 'agent.log'}"}}
        if "error" in told:
            _end(process)
            message = f"the cluster could not be started: {told['error']['message']}"
            raise ControlError("failed", message)
        return cls(process, told)

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    @property
    def pid(self) -> int:
        return self._process.pid

    def close(self) -> None:
        """Ends the cluster and the agent."""
        _end(self._process)

    def __enter__(self) -> AgentProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _end(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    try:
        process.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
