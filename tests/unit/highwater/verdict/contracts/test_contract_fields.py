"""Values in records: places, kinds, Avro."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from highwater.verdict.contracts import avro
from highwater.verdict.contracts.contract_model import load
from highwater.verdict.contracts.duck_engine import RecordsUnreadable
from highwater.verdict.contracts.fields import FIELDS, Record, extract
from highwater.verdict.contracts.reader import librdkafka_settings

NAMES = (*FIELDS, "tombstone", "wrong_field", "wrong")


def look(field: str, place: dict[str, Any], value: bytes | None = b"", **other: Any) -> Any:
    """The field's value in a record, or what is wrong with it."""
    body = {"sequence": {"json": "$.n"}, "amount": {"json": "$.n"}, "id": {"json": "$.n"}}
    body |= {"transaction": {"json": "$.n"}, field: place}
    document = {
        "topics": {"t": body | {"must": ["no gap", "monotonic time"]}},
        "sums": [{"topics": ["t"], "total": 0}],
        "pipelines": [{"from": "t", "to": "t", "must": ["transactions whole"]}],
    }
    files = {"c.json": json.dumps(document), "s.avsc": json.dumps(other.get("schema"))}
    topic = load("c.json", files.get).topics["t"]
    headers = other.get("headers", [])
    record = Record("t", 3, 17, other.get("t", 5), other.get("key"), value, headers)
    found = dict(zip(NAMES, extract({field: topic.sources[field]}, record), strict=True))
    return found["wrong"] or found[field]


VALUE = json.dumps(
    {"a": [{"b": 12}], "s": "12", "f": 1.5, "x": True, "o": {"z": 1, "y": 2}}
).encode()


@pytest.mark.parametrize(
    ("field", "place", "expected"),
    [
        ("sequence", {"json": "$.a[0].b"}, 12),
        ("sequence", {"json": "$.s"}, 12),
        ("sequence", {"column": "offset"}, 17),
        ("sequence", {"header": "n"}, 8),
        ("sequence", {"json": "$.x"}, "has true as json $.x, which is not a number"),
        ("sequence", {"json": "$.a.b"}, "has no json $.a.b"),
        ("sequence", {"header": "m"}, "has no header m"),
        ("key", {"json": "$.o"}, '{"y": 2, "z": 1}'),
        ("key", {"json": "$.k", "of": "key"}, "7"),
        ("amount", {"json": "$.f"}, Decimal("1.5")),
        ("time", {"column": "timestamp"}, 5),
        ("time", {"json": "$.f", "unit": "s"}, 1500),
        ("time", {"header": "at"}, 1714557600250),
        ("id", {"column": "value"}, VALUE.decode()),
    ],
)
def test_places(field: str, place: dict[str, Any], expected: object) -> None:
    headers = [("n", b"7"), ("n", b"8"), ("at", b"2024-05-01T12:00:00.25+02:00")]
    assert look(field, place, VALUE, key=b'{"k": 7}', headers=headers) == expected


def test_a_record_without_a_timestamp_and_a_tombstone() -> None:
    assert look("time", {"column": "timestamp"}, t=None) == "has no column timestamp"
    assert look("sequence", {"json": "$.n"}, None) is None
    assert look("key", {"column": "key"}, None) == "has no column key"


def test_numbers_that_no_column_holds() -> None:
    for text in ("1e400", "9223372036854775808", "NaN", "1_000"):
        value = json.dumps({"n": text}).encode()
        assert "which is not a" in look("sequence", {"json": "$.n"}, value)
        if text != "9223372036854775808":
            assert "which is not a" in look("amount", {"json": "$.n"}, value)


LIST = {
    "type": "record",
    "name": "Node",
    "fields": [
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "tags", "type": {"type": "map", "values": "int"}},
        {"name": "lines", "type": {"type": "array", "items": "long"}},
        {"name": "next", "type": ["null", "Node"]},
    ],
}
END = bytes([0, 2, 1, 0, 0, 0, 0])  # A, 0.01, 0 us, no tags, no lines, no next
NODE = (
    bytes([2, 4, 0xFF, 0x38])  # B, -2.00
    + bytes([0x80, 0xE2, 0x09])  # 80,000 us
    + bytes([2, 2, ord("x"), 6, 0])  # {x: 3}
    + bytes([3, 4, 14, 1, 0])  # a block of two with its size: [7, -1]
    + bytes([2])
    + END
)


def test_avro_of_every_kind() -> None:
    datum = avro.decode(avro.parse(LIST), NODE)
    inner = {"kind": "A", "price": Decimal("0.01"), "at": 0, "tags": {}, "lines": [], "next": None}
    head = {"kind": "B", "price": Decimal("-2.00"), "at": 80, "tags": {"x": 3}, "lines": [7, -1]}
    assert datum == head | {"next": inner}
    assert look("amount", {"avro": "price", "schema": "s.avsc"}, NODE, schema=LIST) == -2
    assert look("sequence", {"avro": "lines[0]", "schema": "s.avsc"}, NODE, schema=LIST) == 7


@given(st.binary(max_size=40))
def test_bytes_that_are_not_of_the_schema_are_refused_or_read_whole(data: bytes) -> None:
    try:
        avro.decode(avro.parse(LIST), data)
    except avro.NotOfThisSchema:
        pass


def test_settings_of_kafkas_tools_in_librdkafkas_names() -> None:
    login = "org.apache.kafka.common.security.scram.ScramLoginModule required"
    given_ = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.jaas.config": rf'{login} username="ada" password="a \"b\"";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": "/ca.pem",
        "ssl.endpoint.identification.algorithm": "",
    }
    assert librdkafka_settings(given_) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "ada",
        "sasl.password": 'a "b"',
        "ssl.ca.location": "/ca.pem",
        "ssl.endpoint.identification.algorithm": "none",
    }
    with pytest.raises(RecordsUnreadable, match="is of type JKS: here only PEM is read"):
        librdkafka_settings({"ssl.truststore.location": "/ca.jks"})
