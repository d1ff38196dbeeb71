"""Decoders of messages whose work is bounded by what they may hold, and not by what they claim.

kafka-python writes one Python function for each message and version.  Of three things in it the
cost would be the sender's choice, and one request could hold up a broker for minutes:

* An array may have as many elements as there are bytes, and each becomes an object: a request of
  100 MiB would take gigabytes.  A message has at most `elements` of them in all.
* A varint goes on for as long as its bytes say so, and each step costs more than the one before.
  It ends after five bytes.
* Tagged fields copy the rest of the message, once for each structure that has some.  The copies
  count as elements, one for `_COPIED_BYTES`.

So the lines of the function are looked at as they are written, and the checks put between them.
Text that is not UTF-8 is read with replacement characters, as Java reads it.

kafka-python reads the end of a structure within a tagged field in an assertion, so that `python -O`
would not read it, and would take the next byte for something else.  `_no_tags` reads it always.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from kafka.protocol.schemas.fields.codecs.tagged_fields import TaggedFields
from kafka.protocol.schemas.fields.codecs.types import UnsignedVarInt32
from kafka.protocol.schemas.fields.codegen import CodegenContext

_ARRAY = re.compile(r"for \w+ in range\((?P<count>\w+)\):")
_TAGS = re.compile(r"\w+ = _BytesIO\(bytes\(data\[pos:\]\)\)")
_VARINT = re.compile(r"    (?P<shift>\w+) \+= 7")
_TEXT = ', "utf-8")'
_COPIED_BYTES = 4096


class TooMuch(ValueError):
    """The message holds more than it may."""


class _BoundedLines(CodegenContext):
    def __init__(self, elements: int) -> None:
        super().__init__()
        self.lines.append("def _decode(data, pos):")
        self.lines.append(f"    _left = {elements}")
        self.globs["_too_much"] = _too_much
        self.globs["_endless"] = _endless
        self._elements = elements

    def emit(self, indent: str, line: str) -> None:
        if found := _ARRAY.fullmatch(line):
            count = found["count"]
            self._spend(indent, f"({count} if {count} > 0 else 0)")
        elif _TAGS.fullmatch(line):
            self._spend(indent, f"1 + (len(data) - pos) // {_COPIED_BYTES}")
        super().emit(indent, line.replace(_TEXT, ', "utf-8", "replace")'))
        if found := _VARINT.fullmatch(line):
            super().emit(indent, f"    if {found['shift']} > 28: _endless()")

    def _spend(self, indent: str, number: str) -> None:
        super().emit(indent, f"_left -= {number}")
        super().emit(indent, f"if _left < 0: _too_much({self._elements})")


def _no_tags(data: Any) -> None:
    count = UnsignedVarInt32.decode(data)
    if count:
        raise ValueError(f"{count} tagged fields in a structure that has none")


TaggedFields.decode_empty = _no_tags


def _too_much(elements: int) -> None:
    raise TooMuch(f"more than {elements} elements in its arrays")


def _endless() -> None:
    raise TooMuch("a varint that does not end")


def bounded_decoder(
    cls: Any, version: int, flexible: bool, elements: int
) -> Callable[[memoryview, int], tuple[Any, int]]:
    """A function from a buffer and a position to a message of `cls` and the position after it.  It
    raises TooMuch, or any other exception if the bytes are no such message."""
    struct, lines = cls._struct, _BoundedLines(elements)
    before, struct._data_class = struct._data_class, cls
    try:
        struct.emit_decode_from(
            lines, "obj", "    ", version=version, compact=flexible, tagged=flexible
        )
    finally:
        struct._data_class = before
    lines.emit("    ", "return obj, pos")
    exec(compile(lines.source(), f"<{cls.__name__} v{version}>", "exec"), lines.globs)
    decoder: Callable[[memoryview, int], tuple[Any, int]] = lines.globs["_decode"]
    return decoder
