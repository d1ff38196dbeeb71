"""Decodes Avro's binary form by the schema with which it was written.  It needs only the standard
library, and a schema is plain data, so that Spark can send both to its workers.

Source: the Avro 1.11 specification, "Schema Declaration" and "Binary Encoding".
"""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import Any, Final

Schema = dict[str, Any]
"""{"root": node, "names": {full name: node}}; a node is a dict with "type", or a full name."""

PRIMITIVES: Final = frozenset(
    ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
)
MS_IN: Final = {"timestamp-millis": 1, "timestamp-micros": 1000, "timestamp-nanos": 1_000_000}


class SchemaError(Exception):
    """Not an Avro schema; the message says what is wrong."""


class NotOfThisSchema(Exception):
    """The bytes are not a datum of the schema."""


def parse(declared: Any) -> Schema:
    """The schema in this JSON, with every name resolved."""
    names: dict[str, Any] = {}
    return {"root": _node(declared, "", names), "names": names}


def _node(declared: Any, space: str, names: dict[str, Any]) -> Any:
    if isinstance(declared, str):
        if declared in PRIMITIVES:
            return {"type": declared}
        full = declared if "." in declared or not space else f"{space}.{declared}"
        for name in (full, declared):
            if name in names:
                return name
        raise SchemaError(f"there is no type {declared}")
    if isinstance(declared, list):
        return {"type": "union", "of": [_node(one, space, names) for one in declared]}
    kind = declared.get("type") if isinstance(declared, dict) else None
    if kind in ("record", "enum", "fixed"):
        return _named(declared, kind, space, names)
    if kind == "array":
        return {"type": kind, "of": _node(declared.get("items"), space, names)}
    if kind == "map":
        return {"type": kind, "of": _node(declared.get("values"), space, names)}
    if kind is None:
        raise SchemaError(f"{str(declared)[:60]} is no type")
    inner = _node(kind, space, names)
    if isinstance(inner, dict) and "logicalType" in declared:
        extra = {k: declared[k] for k in ("logicalType", "scale") if k in declared}
        inner = inner | extra
    return inner


def _named(declared: dict[str, Any], kind: str, space: str, names: dict[str, Any]) -> str:
    name = declared.get("name")
    if not isinstance(name, str):
        raise SchemaError(f"a {kind} has no name")
    if "." not in name and (space := declared.get("namespace", space)):
        name = f"{space}.{name}"
    node: dict[str, Any] = {"type": kind}
    names[name] = node  # before its fields, which may name it
    if kind == "record":
        inside = name.rpartition(".")[0]
        fields = declared.get("fields")
        if not isinstance(fields, list):
            raise SchemaError(f"record {name} has no fields")
        node["fields"] = [(f["name"], _node(f.get("type"), inside, names)) for f in fields]
    elif kind == "enum":
        node["symbols"] = list(declared.get("symbols", ()))
    else:
        node["size"] = int(declared.get("size", 0))
        node |= {k: declared[k] for k in ("logicalType", "scale") if k in declared}
    return name


def decode(schema: Schema, data: bytes) -> Any:
    """The datum: records and maps as dicts, decimals as Decimal, timestamps in ms."""
    reader = _Reader(schema["names"], data)
    try:
        datum = reader.datum(schema["root"])
    except (IndexError, UnicodeDecodeError, RecursionError, struct.error) as error:
        raise NotOfThisSchema from error
    if reader.at != len(data):
        raise NotOfThisSchema
    return datum


class _Reader:
    def __init__(self, names: dict[str, Any], data: bytes) -> None:
        self.names = names
        self.data = data
        self.at = 0

    def datum(self, node: Any) -> Any:
        if isinstance(node, str):
            node = self.names[node]
        kind = node["type"]
        if kind == "record":
            return {name: self.datum(inner) for name, inner in node["fields"]}
        if kind == "union":
            return self.datum(_at(node["of"], self.long()))
        if kind in ("array", "map"):
            return self.blocks(node["of"], kind == "map")
        if kind == "enum":
            return _at(node["symbols"], self.long())
        return _logical(node, self.scalar(kind, node))

    def scalar(self, kind: str, node: dict[str, Any]) -> Any:
        if kind == "null":
            return None
        if kind in ("int", "long"):
            return self.long()
        if kind == "string":
            return self.take(self.long()).decode()
        if kind == "bytes":
            return self.take(self.long())
        if kind == "boolean":
            return self.take(1) != b"\0"
        if kind == "fixed":
            return self.take(node["size"])
        form, size = ("<f", 4) if kind == "float" else ("<d", 8)
        return struct.unpack(form, self.take(size))[0]

    def blocks(self, inner: Any, keyed: bool) -> Any:
        found: list[Any] = []
        while count := self.long():
            if count < 0:  # a negative count is followed by the block's size in bytes
                count = -count
                self.long()
            if count > len(self.data):
                raise NotOfThisSchema
            for _ in range(count):
                key = self.take(self.long()).decode() if keyed else None
                found.append((key, self.datum(inner)))
        return dict(found) if keyed else [datum for _, datum in found]

    def long(self) -> int:
        shift = value = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
            shift += 7
            if shift > 63:
                raise NotOfThisSchema

    def take(self, size: int) -> bytes:
        if size < 0 or self.at + size > len(self.data):
            raise NotOfThisSchema
        self.at += size
        return self.data[self.at - size : self.at]


def _at(choices: list[Any], index: int) -> Any:
    if not 0 <= index < len(choices):
        raise NotOfThisSchema
    return choices[index]


def _logical(node: dict[str, Any], value: Any) -> Any:
    logical = node.get("logicalType")
    if logical == "decimal":
        unscaled = int.from_bytes(value, "big", signed=True)
        return Decimal(unscaled).scaleb(-int(node.get("scale", 0)))
    if logical in MS_IN:
        return value // MS_IN[logical]
    return value
