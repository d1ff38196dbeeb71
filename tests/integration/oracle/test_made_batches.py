"""Produce requests made by a seed, right and wrong (`made_batches`): Apache Kafka and Highwater
give the same codes, name the same records, and store the same.

What `made_batches.DECLARED` does not explain fails, with the request's number:
`MADE_FROM=N MADE_BATCHES=1` plays it alone.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from highwater.kafka.config.sources import profile_properties
from highwater.kafka.errors import ApiError
from highwater.kafka.wire.codec import decode_response, encode_request
from highwater.kafka.wire.header import request_header
from highwater.kafka.wire.records import batches, records_of_batch
from tests.integration.oracle.bodies import request
from tests.integration.oracle.made_batches import CONFIGS, DECLARED, STRICTER, Case
from tests.integration.oracle.rig import APACHE, HIGHWATER, Mixed, eventually

pytestmark = [
    pytest.mark.integration, pytest.mark.apache, pytest.mark.slow, pytest.mark.timeout(1800),
]  # fmt: skip
COUNT = int(os.environ.get("MADE_BATCHES", "200"))
FIRST = int(os.environ.get("MADE_FROM", "0"))
PRODUCE, FETCH, LIST_OFFSETS = 0, 1, 2


class Peer:
    """One broker, asked over one connection; partition ends are noted, so that only what is new is
    compared."""

    def __init__(self, cluster: Mixed) -> None:
        self.cluster = cluster
        self.socket: socket.socket | None = None
        self.ends: Counter[tuple[str, int]] = Counter()

    def ask(self, api: int, version: int, body: dict[str, Any], silent: bool = False) -> Any:
        """The answer; None where there is none (`silent`), or the connection is closed."""
        if self.socket is None:
            self.socket = socket.create_connection(self.cluster.cluster.address(1), 30)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        data = request_header(api, version, 7, "made") + encode_request(
            request(api, version, body), version
        )
        try:
            self.socket.sendall(struct.pack(">i", len(data)) + data)
            if silent:
                return None
            (size,) = struct.unpack(">i", self._exactly(4))
            answer = self._exactly(size)
        except ConnectionError:
            self.socket.close()
            self.socket = None
            return None
        return decode_response(api, version, answer[5 if _flexible(api, version) else 4 :])

    def _exactly(self, size: int) -> bytes:
        assert self.socket is not None
        data = b""
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            if not part:
                raise ConnectionResetError
            data += part
        return data

    def outcome(self, case: Case) -> dict[str, Any]:
        """What it answers, and what it then has stored."""
        body = {
            "transactional_id": case.transactional_id,
            "acks": case.acks,
            "timeout_ms": 10_000,
            "topic_data": [
                {
                    "name": case.topic,
                    "partition_data": [
                        {"index": index, "records": data} for index, data in case.batches.items()
                    ],
                }
            ],
        }
        answer = self.ask(PRODUCE, case.version, body, silent=case.acks == 0)
        found: dict[str, Any] = {}
        if answer is not None:
            for place in answer.responses[0].partition_responses:
                found[f"answer {place.index}"] = (
                    place.error_code,
                    max(-1, place.base_offset - self.ends[case.topic, place.index]),
                    place.log_append_time_ms >= 0,
                    sorted(e.batch_index for e in getattr(place, "record_errors", None) or ()),
                )
        if case.acks == 0:
            found["open"] = self.end(case.topic, 0) is not None
        for index in case.batches:
            found[f"stored {index}"] = self.news(case.topic, index)
        return found

    def end(self, topic: str, partition: int) -> int | None:
        place = {"partition_index": partition, "current_leader_epoch": -1, "timestamp": -1}
        topics = [{"name": topic, "partitions": [place]}]
        answer = self.ask(
            LIST_OFFSETS, 5, {"replica_id": -1, "isolation_level": 0, "topics": topics}
        )
        return None if answer is None else int(answer.topics[0].partitions[0].offset)

    def news(self, topic: str, partition: int) -> list[Any]:
        start, end = self.ends[topic, partition], self.end(topic, partition)
        assert end is not None
        self.ends[topic, partition] = end
        if end == start:
            return []
        body = {
            "replica_id": -1, "max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1 << 26,
            "isolation_level": 0, "session_id": 0, "session_epoch": -1,
            "topics": [{"topic": topic, "partitions": [{
                "partition": partition, "current_leader_epoch": -1, "fetch_offset": start,
                "log_start_offset": -1, "partition_max_bytes": 1 << 26,
            }]}],
            "forgotten_topics_data": [], "rack_id": "",
        }  # fmt: skip
        answer = self.ask(FETCH, 11, body)
        data = bytes(answer.responses[0].partitions[0].records or b"")
        return [
            (
                h.base_offset - start, h.last_offset_delta, h.attributes, h.producer_id,
                h.producer_epoch, h.base_sequence, h.record_count,
                0 if h.timestamp_type else h.max_timestamp,
                _records(data, h, start),
            )
            for h in batches(data)
        ]  # fmt: skip


def _flexible(api: int, version: int) -> bool:
    return version >= {PRODUCE: 9, FETCH: 12, LIST_OFFSETS: 6}[api]


def _records(data: bytes, header: Any, start: int) -> list[Any] | str:
    try:
        return [
            (
                r.offset - start,
                r.key,
                r.value,
                0 if header.timestamp_type else r.timestamp,
                r.headers,
            )
            for r in records_of_batch(data, header)
        ]
    except (ApiError, ValueError) as error:
        return f"unreadable: {error}"


@pytest.fixture(scope="module")
def peers(
    tmp_path_factory: pytest.TempPathFactory, apache_tool: Callable[..., Any]
) -> Iterator[tuple[Peer, Peer]]:
    properties = {
        **profile_properties("test", 1),
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "min.insync.replicas": "1",
        "log.retention.hours": "-1",
    }
    with ExitStack() as stack:
        made = []
        for name in (HIGHWATER, APACHE):
            cluster = Mixed(tmp_path_factory.mktemp(name) / "cluster", {1: name}, properties)
            stack.enter_context(cluster.background)
            admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
            topics = [NewTopic(f"made-{n}", 2, 1, config=c) for n, c in CONFIGS.items()]
            for topic, future in admin.create_topics(topics).items():
                future.result(60)
                eventually(lambda c=cluster, t=topic: c.whole(t), f"{topic} is whole")  # type: ignore[misc]
            made.append(Peer(cluster))
        yield made[0], made[1]


def test_the_same_batches_are_taken_and_refused(peers: tuple[Peer, Peer]) -> None:
    ours, apache = peers
    now_ms = int(time.time() * 1000)
    seen: Counter[str] = Counter()
    damages: Counter[str] = Counter()
    wrong: list[str] = []
    for number in range(FIRST, FIRST + COUNT):
        case = Case(number, now_ms)
        want, found = apache.outcome(case), ours.outcome(case)
        seen["stored" if want["stored 0"] else "refused"] += 1
        damages.update(case.made.names)
        if want == found:
            seen["equal"] += 1
            continue
        named = [name for name, holds in DECLARED.items() if holds(case)]
        if named and (named[0] not in STRICTER or not found["stored 0"]):
            seen[named[0]] += 1
        else:
            apart = [name for name in want if want[name] != found.get(name)]
            told = [f"{n}: {str(want[n])[:500]}\n   here {str(found.get(n))[:500]}" for n in apart]
            wrong.append("\n  ".join([str(case), *told]))
    print(dict(damages))
    print(f"{COUNT} requests:", ", ".join(f"{count} {what}" for what, count in seen.items()))
    assert not wrong, f"{len(wrong)} of {COUNT} differ:\n" + "\n".join(wrong[:40])
    if COUNT >= 100:
        assert min(seen["stored"], seen["refused"]) > COUNT / 5, "else it proves nothing"
        assert seen["equal"] > COUNT / 2
