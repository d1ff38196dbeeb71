"""A client as its own requests show it: its library, its settings, and its errors.

    ApiVersions           the library and its version (KIP-511, from v3 on)
    Produce               acks; and by the header of the first batch idempotence, transactions,
                          compression; how many requests are in flight
    InitProducerId        transactional.id, transaction.timeout.ms
    Fetch                 isolation.level, how long and for how much it waits
    JoinGroup             group.id, session.timeout.ms, max.poll.interval.ms, the assignors
    ConsumerGroupHeartbeat  the group protocol of KIP-848
    Metadata's answer     topics that are unknown, or that the client may not use

Two things are in no request, so they are not seen: whether offsets are committed automatically, and
how often a send is tried again.  No I/O: `client_watch` has the proxies.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from highwater.doctor.rules import IN_FLIGHT
from highwater.kafka.errors import ErrorCode
from highwater.kafka.wire.codec import BadMessage, UnknownApi, decode_request, decode_response
from highwater.kafka.wire.header import RequestHeader, api_name
from highwater.kafka.wire.produce_head import read_head
from highwater.kafka.wire.varint import read_compact_string

PRODUCE, FETCH, METADATA, JOIN_GROUP, API_VERSIONS, INIT_PRODUCER_ID = 0, 1, 3, 11, 18, 22
CONSUMER_GROUP_HEARTBEAT = 68
LOOKED_AT = 50
"""How many requests of one API are read on each connection: later ones show the same settings."""
CLIENTS = 1000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_BATCH = struct.Struct(">21xh20xqh")
"""A batch's header up to attributes, producer id and epoch."""


@dataclass(slots=True)
class Client:
    """One client id of one library."""

    name: str
    software: str
    connections: int = 0
    settings: dict[str, list[str]] = field(default_factory=dict)
    """Setting, by Java's name -> the values that were seen, in order."""
    roles: set[str] = field(default_factory=set)
    asked: Counter[str] = field(default_factory=Counter)
    errors: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(API, or topic, and error code) of answers."""
    too_old: dict[str, str] = field(default_factory=dict)
    """API -> the version of the client's request, and those that the broker knows."""

    def saw(self, setting: str, value: object) -> None:
        values = self.settings.setdefault(setting, [])
        if str(value) not in values and len(values) < 20:
            values.append(str(value))

    def forget(self, what: str) -> None:
        for known in [known for known in self.errors if known[0] == what]:
            del self.errors[known]

    def __str__(self) -> str:
        return (
            f"{self.name or '(no client.id)'} ({self.software or 'it does not name its library'})"
        )


@dataclass(slots=True)
class _Connection:
    owner: str
    tls: bool
    software: str = ""
    client: Client | None = None
    looked: Counter[int] = field(default_factory=Counter)
    in_flight: int = 0
    """The number of Produce requests that are not answered yet."""
    asked: bool = False
    answered: bool = False


class Seen:
    """An `Observer` of the proxies in front of a cluster."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._open: dict[int, _Connection] = {}
        self._known: dict[int, tuple[int, int]] = {}
        """API key -> the versions that the brokers know, from the last answer that had them."""
        self.clients: dict[tuple[str, str], Client] = {}
        self.tls = 0
        """Connections that began with TLS."""
        self.plain = 0
        self.not_reached: Counter[tuple[str, str]] = Counter()
        """(broker, why) of connections that the proxy could not pass on."""
        self.silent: Counter[str] = Counter()
        """Connections that a broker ended without any answer, by their request."""

    # --- what the proxies tell

    def begun(self, connection: int, owner: str, first: bytes) -> None:
        tls = first[:2] == b"\x16\x03"
        self._open[connection] = _Connection(owner, tls)
        if tls:
            self.tls += 1
            self._tell(f"a client speaks TLS to {owner}")
        else:
            self.plain += 1

    def unreachable(self, connection: int, owner: str, why: str) -> None:
        if not self.not_reached[owner, why]:
            self._tell(f"{owner} cannot be reached: {why}")
        self.not_reached[owner, why] += 1

    def asked(
        self, connection: int, header: RequestHeader, body: memoryview, *, whole: bool
    ) -> None:
        of = self._open.get(connection)
        if of is None or of.tls:
            return
        key = header.api_key
        if key == API_VERSIONS and header.api_version >= 3:
            with_name = _decoded(key, header.api_version, body)
            if with_name is not None:
                name, version = with_name.client_software_name, with_name.client_software_version
                of.software = f"{name} {version}".strip()
        client = self._client(of, header.client_id or "")
        if client is None:
            return
        client.asked[api_name(key)] += 1
        self._check_version(client, key, header.api_version)
        of.asked = True
        if key == PRODUCE:
            of.in_flight += _produces(client, header.api_version, body)  # acks=0 has no answer
            most = max(of.in_flight, *map(int, client.settings.get(IN_FLIGHT, ["0"])))
            client.settings[IN_FLIGHT] = [str(most)]
        elif whole and of.looked[key] < LOOKED_AT and key in _READERS:
            of.looked[key] += 1
            _READERS[key](client, header.api_version, body)

    def answered(
        self, connection: int, api_key: int, version: int, body: memoryview, *, whole: bool
    ) -> None:
        of = self._open.get(connection)
        if of is None:
            return
        of.answered = True
        if api_key == PRODUCE:
            of.in_flight = max(0, of.in_flight - 1)
        if api_key not in (API_VERSIONS, METADATA, JOIN_GROUP, INIT_PRODUCER_ID) or not whole:
            return
        try:
            answer = decode_response(api_key, version, body)
        except (BadMessage, UnknownApi):
            return
        if api_key == API_VERSIONS and not answer.error_code:
            self._known = {a.api_key: (a.min_version, a.max_version) for a in answer.api_keys}
        elif of.client is not None:
            for what, code in _errors(api_key, answer):
                if code:
                    of.client.errors[what, code] += 1
                else:  # the topic exists by now
                    of.client.forget(what)

    def hung_up(self, connection: int) -> None:
        of = self._open.get(connection)
        if of is not None and of.client is not None and of.asked and not of.answered:
            self.silent[str(of.client)] += 1

    def ended(self, connection: int) -> None:
        self._open.pop(connection, None)

    # --- inside

    def _client(self, of: _Connection, name: str) -> Client | None:
        if of.client is not None and of.client.name == name:
            return of.client
        key = (name, of.software)
        client = self.clients.get(key)
        if client is None:
            if len(self.clients) >= CLIENTS:
                return None
            client = self.clients[key] = Client(name, of.software)
            self._tell(f"{client} connects")
        client.connections += 1
        of.client = client
        return client

    def _check_version(self, client: Client, key: int, version: int) -> None:
        low, high = self._known.get(key, (0, version))
        if key != API_VERSIONS and not low <= version <= high:
            told = f"it asks for version {version}, and the brokers know {low} to {high}"
            client.too_old[api_name(key)] = told


def _decoded(key: int, version: int, body: memoryview) -> Any:
    try:
        return decode_request(key, version, body)
    except (BadMessage, UnknownApi):
        return None


def _errors(api_key: int, answer: Any) -> Iterator[tuple[str, str]]:
    topics = answer.topics if api_key == METADATA else ()
    for topic in topics:
        yield f"topic {topic.name}", _code(topic.error_code) if topic.error_code else ""
    if api_key != METADATA and answer.error_code:
        yield api_name(api_key), _code(answer.error_code)


def _code(number: int) -> str:
    try:
        return ErrorCode(number).name
    except ValueError:
        return f"error {number}"


# -------------------------------------------------------------------- requests


def _produces(client: Client, version: int, body: memoryview) -> bool:
    """Reads a Produce request up to its first batch; whether an answer will come."""
    client.roles.add("producer")
    head = read_head(version, body)
    if head is None:
        return True
    client.saw("acks", "all" if head.acks == -1 else head.acks)
    client.saw("request.timeout.ms", head.timeout_ms)
    if head.transactional_id:
        client.saw("transactional.id", head.transactional_id)
    if head.batch is not None and head.batch + _BATCH.size <= len(body):
        attributes, producer_id, _ = _BATCH.unpack_from(body, head.batch)
        client.saw("enable.idempotence", str(producer_id >= 0).lower())
        if (attributes & 7) < len(CODECS):
            client.saw("compression.type", CODECS[attributes & 7])
    return head.acks != 0


def _fetches(client: Client, version: int, body: memoryview) -> None:
    client.roles.add("consumer")
    request = _decoded(FETCH, version, body)
    if request is not None and version >= 4:
        level = "read_committed" if request.isolation_level else "read_uncommitted"
        client.saw("isolation.level", level)
        client.saw("fetch.max.wait.ms", request.max_wait_ms)
        client.saw("fetch.min.bytes", request.min_bytes)


def _joins(client: Client, version: int, body: memoryview) -> None:
    client.roles.add("consumer")
    request = _decoded(JOIN_GROUP, version, body)
    if request is None:
        return
    client.saw("group.id", request.group_id)
    client.saw("group.protocol", "classic")
    client.saw("session.timeout.ms", request.session_timeout_ms)
    if version >= 1:
        client.saw("max.poll.interval.ms", request.rebalance_timeout_ms)
    if version >= 5 and request.group_instance_id:
        client.saw("group.instance.id", request.group_instance_id)
    client.saw("partition.assignment.strategy", ",".join(p.name for p in request.protocols))


def _beats(client: Client, version: int, body: memoryview) -> None:
    client.roles.add("consumer")
    client.saw("group.protocol", "consumer")
    try:
        client.saw("group.id", read_compact_string(body, 0)[0])
    except (IndexError, ValueError):
        return


def _begins(client: Client, version: int, body: memoryview) -> None:
    client.roles.add("producer")
    request = _decoded(INIT_PRODUCER_ID, version, body)
    if request is not None and request.transactional_id:
        client.saw("transactional.id", request.transactional_id)
        client.saw("transaction.timeout.ms", request.transaction_timeout_ms)


_READERS: dict[int, Callable[[Client, int, memoryview], None]] = {
    FETCH: _fetches,
    JOIN_GROUP: _joins,
    CONSUMER_GROUP_HEARTBEAT: _beats,
    INIT_PRODUCER_ID: _begins,
}
