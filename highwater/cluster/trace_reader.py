"""Follows one request through a broker, or its connections, by the /trace of the metrics port.

It listens to every broker, because the leader is not known yet; the trace ends when some broker has
reported a request to its end.  To give it something to trace, a record is produced
(acks=all) once all of them listen.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import trio

from highwater.child_processes import StartError
from highwater.client_calls import SOON_S, within

Show = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Wanted:
    """The thing to follow: the next request of an API, or connections."""

    api: str = "Produce"
    connections: bool = False
    topic: str | None = None
    """The topic to which a record is produced; None: wait for a client's request."""
    seconds: float = 60

    @property
    def query(self) -> str:
        return "connections" if self.connections else f"api={self.api}"


async def follow(ports: Mapping[int, int], bootstrap: str, wanted: Wanted, show: Show) -> bool:
    """Shows what the brokers report; returns whether any reported something.

    `ports`: the metrics port of each broker.  Raises StartError where one cannot be read.
    """
    told = False
    with trio.move_on_after(wanted.seconds):
        async with trio.open_nursery() as nursery:

            async def listen(number: int, port: int, *, task_status: Any) -> None:
                nonlocal told
                async for line in _lines(number, port, wanted.query, task_status):
                    told = True
                    show(line_of(number, line))
                    if line["event"] in ("times", "error"):
                        nursery.cancel_scope.cancel()

            for number, port in ports.items():
                await nursery.start(listen, number, port)
            if wanted.topic is not None:
                await trio.to_thread.run_sync(
                    _produce, bootstrap, wanted.topic, abandon_on_cancel=True
                )
    return told


async def _lines(number: int, port: int, query: str, task_status: Any) -> Any:
    try:
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        await stream.send_all(f"GET /trace?{query} HTTP/1.1\r\n\r\n".encode())
        data = b""
        async with stream:
            while b"\r\n\r\n" not in data:
                more = await stream.receive_some()
                if not more:
                    raise StartError(f"broker {number} does not tell what it does on port {port}")
                data += more
            task_status.started()
            head, _, data = data.partition(b"\r\n\r\n")
            if b" 200 " not in head.split(b"\r\n")[0]:
                raise StartError(f"broker {number}: port {port} has no /trace")
            while True:
                while b"\n" in data:
                    line, _, data = data.partition(b"\n")
                    yield json.loads(line)
                more = await stream.receive_some()
                if not more:
                    return
                data += more
    except OSError as e:
        raise StartError(f"broker {number} cannot be listened to on port {port}: {e}") from e


def line_of(number: int, line: Mapping[str, Any]) -> str:
    """One event for the terminal."""
    event = line["event"]
    if event == "times":
        times = ", ".join(f"{name} {us:.0f}" for name, us in line["microseconds"].items())
        text = f"{times} (us)"
    elif event in ("opened", "closed"):
        by = f" by the {line['by']}" if "by" in line else ""
        text = (
            f"{line['connection']} on {line['listener']}, processor {line['processor']}"
            f"{by}; {line['software']}; {line['open']} open"
        )
    else:
        text = line["text"]
    return f"{line['us']:>9} us  broker {number}  {event:<9}  {text}"


def _produce(bootstrap: str, topic: str) -> None:
    """Produces one record to an existing topic, over an open connection; raises StartError where
    the client reports an error, and ClientHangs.
    """
    from confluent_kafka import KafkaException, Producer

    settings = {"bootstrap.servers": bootstrap, "acks": "all", "client.id": "highwater-trace"}
    producer = Producer({**settings, "log_level": 0, "linger.ms": 0})
    phase = f"sending a record to {topic}"
    try:
        within(phase, 10 + SOON_S, producer.list_topics, topic, 10)
        producer.produce(topic, b"follow me")
    except KafkaException as error:
        raise StartError(f"no record can be sent to the topic {topic!r}: {error}") from None
    within(phase, 30 + SOON_S, producer.flush, 30)
