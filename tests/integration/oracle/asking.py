"""The same requests to two clusters, one after the other, and the differences of their answers.

A `Case` is asked at every version that both sides know, of a broker that is named by its role:
broker 1, broker 2, the controller, or the other broker.  Later requests can use values from earlier
answers of their own side (`Side.facts`).  A closed connection is an answer as well.

Values that must differ are made equal before the comparison: ports, random ids, times, the folders
of logs, and the words of error messages (their presence is compared).  For a `timed` Case the
comparison includes whether the answer came at once or after max_wait_ms.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import trio

from highwater.kafka.client.connection import ClientConnection, ConnectionLost, RequestTimedOut
from highwater.kafka.wire.codec import BadMessage, decode_response, encode_request
from highwater.kafka.wire.header import api_name
from highwater.world.api import Network
from highwater.world.real.network import RealNetwork
from tests.integration.oracle.bodies import plain, request
from tests.integration.oracle.rig import Mixed

Body = Mapping[str, Any]
ANSWER_S = 60
MEANWHILE_S = 0.2
"""The delay after a Fetch until the event that is to meet it waiting."""


@dataclass(slots=True)
class Side:
    """One cluster, with a connection to each broker."""

    name: str
    addresses: dict[int, tuple[str, int]]
    controller: int
    facts: dict[str, Any] = field(default_factory=dict)
    network: Network = field(default_factory=RealNetwork)
    """That of tests that log in logs in."""
    _connections: dict[tuple[int, bool], ClientConnection] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, cluster: Mixed) -> Side:
        addresses = {n: cluster.cluster.address(n) for n in cluster.numbers}
        controller = cluster.controller()
        return cls(name, addresses, controller, {"controller": controller})

    def broker(self, part: str) -> int:
        if part == "controller":
            return self.controller
        if part == "other":
            return next(n for n in self.addresses if n != self.controller)
        return int(part)

    async def connection(self, number: int, other: bool) -> ClientConnection:
        held = self._connections.get((number, other))
        if held is None or held.closed:
            host, port = self.addresses[number]
            held = await ClientConnection.open(self.network, host, port, "same-answers")
            self._connections[number, other] = held
        return held

    async def ask(
        self,
        number: int,
        api_key: int,
        version: int,
        message: Any,
        within_s: float = ANSWER_S,
        *,
        other: bool = False,
    ) -> Any:
        """The answer in plain form; "closed" or "silent" if there is none.

        `other` is for a request that must not wait behind one that is not answered yet.
        """
        connection = await self.connection(number, other)
        body = encode_request(message, version)
        try:
            answer = await connection.call_raw(api_key, version, [body], within_s)
            decoded = decode_response(api_key, version, answer)
            if api_key == FETCH:
                _without_producer_ids(decoded)
            return plain(decoded)
        except ConnectionLost:
            return "closed"
        except RequestTimedOut:
            connection.close()
            return "silent"
        except BadMessage as error:
            return f"not decodable: {error}"

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    api_key: int
    body: Body | Callable[[int, dict[str, Any]], Body]
    """Fields, or a function that makes them from the version and the side's facts."""
    to: str = "1"
    versions: tuple[int, int] = (0, 99)
    keep: Callable[[int, Any, dict[str, Any]], None] | None = None
    """Takes facts for later requests from an answer."""
    until: Callable[[Any], bool] | None = None
    """Asked again until the answer is so: the effect of an earlier request takes its time."""
    within_s: float = ANSWER_S
    """The time after which it counts as "silent" (and its connection is closed)."""
    timed: bool = False
    """A Fetch: the answer says, as `answered`, whether it came at once or waited."""
    meanwhile: Case | None = None
    """A request to the same broker while this one waits; its own answer does not matter."""


class Difference(NamedTuple):
    api: str
    case: str
    version: int
    path: str
    ours: Any
    theirs: Any

    def __str__(self) -> str:
        where = f"{self.api} v{self.version}, {self.case}: {self.path}"
        return f"{where}: ours {self.ours!r}, theirs {self.theirs!r}"


class Offered:
    """The versions of each API that both sides answer."""

    def __init__(self, ours: Any, theirs: Any) -> None:
        self.ours = _ranges(ours)
        self.theirs = _ranges(theirs)

    def common(self, api_key: int) -> range:
        low, high = self.ours.get(api_key, (0, -1))
        their_low, their_high = self.theirs.get(api_key, (0, -1))
        return range(max(low, their_low), min(high, their_high) + 1)


def _ranges(answer: Any) -> dict[int, tuple[int, int]]:
    return {a["api_key"]: (a["min_version"], a["max_version"]) for a in answer["api_keys"]}


async def compare(
    ours: Side, theirs: Side, offered: Offered, cases: list[Case]
) -> tuple[int, list[Difference]]:
    """The number of answers compared, and their differences."""
    asked, found = 0, []
    for case in cases:
        for version in offered.common(case.api_key):
            if not case.versions[0] <= version <= case.versions[1]:
                continue
            answers = []
            for side in (ours, theirs):
                message = _message(side, case, version)
                if case.timed:
                    answer = await _timed_answer(side, case, version, message)
                else:
                    answer = await _answer(side, case, version, message)
                if case.keep is not None and isinstance(answer, dict):
                    case.keep(version, answer, side.facts)
                answers.append(normal(answer, side.facts))
            asked += 1
            name = api_name(case.api_key)
            for path, mine, other in differences(answers[0], answers[1]):
                found.append(Difference(name, case.name, version, path, mine, other))
    return asked, found


def _message(side: Side, case: Case, version: int) -> Any:
    fields = case.body(version, side.facts) if callable(case.body) else case.body
    return request(case.api_key, version, fields)


async def _timed_answer(side: Side, case: Case, version: int, message: Any) -> Any:
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        if case.meanwhile is not None:
            nursery.start_soon(_meanwhile, side, case.meanwhile)
        answer = await _answer(side, case, version, message)
        # a little less: brokers count whole milliseconds
        waited = trio.current_time() - began >= message.max_wait_ms * 0.95 / 1000
    when = "after max_wait_ms" if waited else "at once"
    return answer | {"answered": when} if isinstance(answer, dict) else answer


async def _meanwhile(side: Side, case: Case) -> None:
    await trio.sleep(MEANWHILE_S)
    version = case.versions[0]
    message = _message(side, case, version)
    await side.ask(side.broker(case.to), case.api_key, version, message, other=True)


async def _answer(side: Side, case: Case, version: int, message: Any) -> Any:
    number = side.broker(case.to)
    answer = await side.ask(number, case.api_key, version, message, case.within_s)
    if case.until is None:
        return answer
    with trio.move_on_after(ANSWER_S):
        while not (isinstance(answer, dict) and case.until(answer)):
            await trio.sleep(0.1)
            answer = await side.ask(number, case.api_key, version, message)
        return answer
    wanted = f"{api_name(case.api_key)} v{version}, {case.name!r}"
    raise AssertionError(f"{side.name} never answered as {wanted} waits for; at last {answer}")


# --- values that must differ

FETCH = 1
_BY_LOT = {
    "cluster_id", "topic_id", "producer_id", "port", "log_append_time_ms", "session_id",
    "throttle_time_ms", "log_dir", "total_bytes", "usable_bytes", "last_timestamp",
    "transaction_start_time_ms",
}  # fmt: skip
_HEADER_BYTES = 61
"""Of a record batch, magic v2."""
_TEXT = {"error_message", "batch_index_error_message"}
_UUID = re.compile(r"-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$")
_KEYS = (
    "name", "topic", "topic_name", "api_key", "partition_index", "partition", "index", "node_id",
    "broker_id", "group_id", "resource_name", "config_name", "member_id", "group_instance_id",
)  # fmt: skip
"""Lists of structures are compared by these keys, as their order means nothing."""


def normal(value: Any, facts: Mapping[str, Any], name: str = "") -> Any:
    if isinstance(value, dict):
        return {key: normal(item, facts, key) for key, item in value.items()}
    if isinstance(value, list):
        items = [normal(item, facts, name) for item in value]
        if items and isinstance(items[0], dict):
            return sorted(items, key=_sort_key)
        if name in {"isr_nodes", "offline_replicas", "partition_indexes"}:
            return sorted(items)
        return items
    if name in _BY_LOT:
        if name == "producer_id" and value == 0:
            return "*"  # the first one present
        return "none" if value in (None, -1, "", 0, "00000000-0000-0000-0000-000000000000") else "*"
    if name == "controller_id":
        return "the controller" if value == facts.get("controller") else value
    if name in _TEXT:
        return "none" if value is None else "text"
    if isinstance(value, str):
        return _UUID.sub("-*", value)
    return value


def _without_producer_ids(answer: Any) -> None:
    """Blocks of producer ids go to brokers by lot: ids are masked, and the CRCs over them."""
    for topic in answer.responses:
        for partition in topic.partitions:
            if partition.records:
                partition.records = _masked(bytes(partition.records))


def _masked(records: bytes) -> bytes:
    masked = bytearray(records)
    start = 0
    while start + _HEADER_BYTES <= len(masked):
        producer_id = slice(start + 43, start + 51)
        if masked[producer_id] != b"\xff" * 8:
            masked[producer_id] = bytes(8)
            masked[start + 17 : start + 21] = bytes(4)
        start += 12 + int.from_bytes(masked[start + 8 : start + 12], "big")
    return bytes(masked)


def _sort_key(item: dict[str, Any]) -> str:
    return "|".join(f"{item[key]!s:>9}" for key in _KEYS if key in item)


def differences(ours: Any, theirs: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """(path, ours, theirs) where two answers are not equal; an item is named by its key."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in {**ours, **theirs}:
            inner = f"{path}.{key}" if path else key
            yield from differences(ours.get(key, "absent"), theirs.get(key, "absent"), inner)
    elif _structures(ours) and _structures(theirs) and (ours or theirs):
        by_key = [
            {_sort_key(item).replace(" ", ""): item for item in side} for side in (ours, theirs)
        ]
        if any(len(d) != len(s) for d, s in zip(by_key, (ours, theirs), strict=True)):
            by_key = [{str(i): item for i, item in enumerate(side)} for side in (ours, theirs)]
        for key in {**by_key[0], **by_key[1]}:
            one, other = by_key[0].get(key, "absent"), by_key[1].get(key, "absent")
            yield from differences(one, other, f"{path}[{key}]")
    elif ours != theirs:
        yield path, ours, theirs


def _structures(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)
