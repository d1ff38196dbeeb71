"""Extracts key, number, time, ... of a record from the places that a contract names.

Both engines call `extract`.  Spark sends it to its workers as it is, so this module and `avro` have
only functions on plain data, and need only the standard library.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from decimal import Context, Decimal, InvalidOperation
from typing import Any, Final, NamedTuple

from highwater.verdict.contracts.avro import NotOfThisSchema, decode

FIELDS: Final[dict[str, str]] = {
    "key": "STRING",
    "id": "STRING",
    "sequence": "BIGINT",
    "time": "BIGINT",
    "amount": "DECIMAL(38, 9)",
    "transaction": "STRING",
}
"""The fields that a contract can place, with their SQL types; `time` is in ms."""
PLACES: Final = ("column", "header", "json", "avro")
UNITS_IN_MS: Final = {
    "s": Decimal(1000),
    "ms": Decimal(1),
    "us": Decimal("0.001"),
    "ns": Decimal("0.000001"),
}
CONFLUENT_BYTES: Final = 5
"""The length of the prefix of Confluent's serializers: a zero byte, and the id of a schema."""
LARGEST_AMOUNT: Final = Decimal(10) ** 29
BILLIONTH: Final = Decimal("1e-9")
EXACT: Final = Context(prec=100)

Source = Mapping[str, Any]
"""One field: `place` and `path`, and what the place needs: `of`, `confluent`, `schema`, `unit`;
`told` is the place in words.
"""


class Record(NamedTuple):
    """A record as a consumer has it."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


class Unlike(Exception):
    """The record does not have the form that the contract describes."""


def extract(sources: Mapping[str, Source], record: Record) -> tuple[Any, ...]:
    """The values in the order of FIELDS (None: not wanted, or missing), whether the record is a
    tombstone, the first field that is not as the contract says, and what is wrong with it.

    Fields that a tombstone lacks because it has no value are not wrong.
    """
    found: dict[str, Any] = dict.fromkeys(FIELDS)
    parsed: dict[tuple[str, str], Any] = {}
    wrong: tuple[str | None, str | None] = (None, None)
    for name, source in sources.items():
        if record.value is None and source["of"] == "value":
            continue
        try:
            raw = _raw(source, record, parsed)
            if raw is None:
                raise Unlike(f"has no {source['told']}")
            found[name] = _CONVERTED[name](raw, source)
        except Unlike as error:
            if wrong[0] is None:
                wrong = (name, str(error))
    return (*found.values(), record.value is None, *wrong)


def _raw(source: Source, record: Record, parsed: dict[tuple[str, str], Any]) -> Any:
    place, path = source["place"], source["path"]
    if place == "column":
        stamp = record.timestamp_ms
        if path == "timestamp":
            return None if stamp is None or stamp < 0 else stamp
        return getattr(record, path)
    if place == "header":
        # Kafka allows a name twice: the last header counts, as in Headers.lastHeader
        return next((value for name, value in reversed(record.headers) if name == path), None)
    of = source["of"]
    if (place, of) not in parsed:
        try:
            parsed[place, of] = _document(source, record)
        except Unlike as error:
            parsed[place, of] = error
    found = parsed[place, of]
    if isinstance(found, Unlike):
        raise found
    return _walk(found, path)


def _document(source: Source, record: Record) -> Any:
    of = source["of"]
    data = record.value if of == "value" else record.key
    if data is None:
        return None
    if source["confluent"]:
        if len(data) < CONFLUENT_BYTES or data[0]:
            raise Unlike(f"does not begin its {of} with the five bytes of a schema registry")
        data = data[CONFLUENT_BYTES:]
    if source["place"] == "json":
        try:
            return json.loads(data, parse_float=Decimal)
        except (ValueError, RecursionError):
            raise Unlike(f"has a {of} that is not JSON") from None
    try:
        return decode(source["schema"], data)
    except NotOfThisSchema:
        raise Unlike(f"has a {of} that is not Avro of the schema {source['schema_file']}") from None


def _walk(found: Any, path: Sequence[str | int]) -> Any:
    for step in path:
        if isinstance(step, int):
            there = isinstance(found, list) and -len(found) <= step < len(found)
        else:
            there = isinstance(found, dict) and step in found
        if not there:
            return None
        found = found[step]
    return found


def _text(raw: Any, _source: Source) -> str:
    if isinstance(raw, bytes):
        return raw.decode(errors="backslashreplace")
    if isinstance(raw, str | Decimal):
        # JSON allows half a surrogate pair, but no engine's text does
        return str(raw).encode(errors="backslashreplace").decode()
    return json.dumps(raw, sort_keys=True, default=str)


def _whole(raw: Any, source: Source) -> int:
    number = _number(raw, source)
    if number != number.to_integral_value() or not -(2**63) <= number < 2**63:
        raise _no(raw, source, "a whole number of 64 bits")
    return int(number)


def _time(raw: Any, source: Source) -> int:
    text = raw.decode(errors="replace") if isinstance(raw, bytes) else raw
    if isinstance(text, str) and not re.fullmatch(r"[+-]?[0-9.]+", text):
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise _no(raw, source, "a time") from None
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=timezone.utc)  # noqa: UP017 (executors may be older)
        return round(moment.timestamp() * 1000)
    return _whole(int(_number(text, source) * UNITS_IN_MS[source["unit"]]), source)


def _amount(raw: Any, source: Source) -> Decimal:
    number = _number(raw, source)
    amount = number.quantize(BILLIONTH, context=EXACT)
    if abs(number) >= LARGEST_AMOUNT or number != amount:
        raise _no(raw, source, "an amount of 29 digits and 9 decimals")
    return amount


def _number(raw: Any, source: Source) -> Decimal:
    text = raw.decode(errors="replace") if isinstance(raw, bytes) else str(raw)
    try:
        number = Decimal("nan" if isinstance(raw, bool) or "_" in text else text)
    except InvalidOperation:
        number = Decimal("nan")
    if not number.is_finite() or number.adjusted() > 40:
        raise _no(raw, source, "a number")
    return number


def _no(raw: Any, source: Source, wanted: str) -> Unlike:
    return Unlike(f"has {_text(raw, source)[:40]} as {source['told']}, which is not {wanted}")


_CONVERTED: Final = {
    "key": _text,
    "id": _text,
    "sequence": _whole,
    "time": _time,
    "amount": _amount,
    "transaction": _text,
}
