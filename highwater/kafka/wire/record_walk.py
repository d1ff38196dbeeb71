"""A walk over the records of a client's batch, which changes nothing and keeps nothing.

It looks at what `records` and `record_codec` trust: that there are as many records as the header
counts, each as long as it says, with offsets 0, 1, 2, ... and nothing after the last one.  It finds
the largest timestamp, and the records that the topic does not take.

The payload comes in parts (`feed`), so that one that opens to a gigabyte needs no more memory than
a part.  The walk stops when its budget of records, headers and parts is used up, because it runs on
the broker's loop: 1 MiB of small records takes some 10 ms where this file is not compiled.

Varints are read as Kafka's ByteUtils reads them: at most five bytes, or ten for a timestamp, and
bits beyond the number's width are dropped.  Any negative length of a key or a value is null.

Source: org.apache.kafka.common.record.DefaultRecord, DefaultRecordBatch.RecordIterator.
"""

from __future__ import annotations

from highwater.kafka.errors import ApiError, ErrorCode

MORE, FEED, DONE = 0, 1, 2
"""The results of `walk`: call it again; feed the next part; the payload is sound to its end."""
NAMED = 100
"""How many refused records are kept; all are counted."""
NO_KEY, OUT_OF_TIME = 0, 1
"""Why a record is refused."""

_PART_COST = 16
_WHOLE = 1 << 14
"""A record of up to so many bytes is looked at when all of it is there."""
_FEW_HEADERS = 32
_SHORTEST = 6
"""Bytes of a record without key, value and headers."""
_FAR = 1 << 61
_LOW, _HIGH = -(1 << 63), (1 << 63) - 1

_TIMESTAMP, _OFFSET, _KEY, _VALUE, _COUNT, _NAME, _CONTENT, _LAST = range(8)
"""The fields of a record that is looked at piece by piece."""


def invalid(index: int, what: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_RECORD, f"record {index} of the batch {what}")


class RecordWalk:
    """The walk over one batch; `oldest` and `latest` bound its records' timestamps (ms)."""

    def __init__(
        self, count: int, base_timestamp: int, keyed: bool, oldest: int, latest: int
    ) -> None:
        self.budget = 0
        """How many records and headers it may look at; a part costs _PART_COST of them."""
        self.index = 0
        """The record that is looked at."""
        self.refused: list[tuple[int, int, int]] = []
        """Index, reason and timestamp of the first NAMED of them."""
        self.refusals = 0
        self._count = count
        self._base = base_timestamp
        self._top = 0
        self._any = False
        self._keyed = keyed
        self._limited = oldest > _LOW or latest < _HIGH
        self._oldest = oldest
        self._latest = latest
        self._far = not -_FAR < base_timestamp < _FAR
        self._data = b""
        self._at = 0
        self._ended = False
        # a record that is looked at piece by piece
        self._field = -1
        self._left = 0
        self._skip = 0
        self._headers = 0
        self._delta = 0
        self._without_key = False

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp of the records so far; at least -1 (none)."""
        return max(self._base + self._top, -1) if self._any else -1

    def feed(self, part: bytes, last: bool) -> None:
        """Gives the walk the next bytes of the payload; `last`: whether the payload ends there."""
        at = self._at
        self._data = part if at == len(self._data) else self._data[at:] + part
        self._at = 0
        self._ended = last
        self.budget -= _PART_COST

    def walk(self) -> int:
        """Goes on, within the budget; raises ApiError(INVALID_RECORD)."""
        while True:
            if self._field < 0:
                self._records()
            if self._field < 0:
                break
            self._piecewise()
            if self._field >= 0 or self.budget <= 0:
                break
        if self._field >= 0 or self.index < self._count:
            return MORE if self.budget <= 0 else FEED
        if self._at < len(self._data):
            raise ApiError(
                ErrorCode.INVALID_RECORD,
                f"the batch counts {self._count} records, and there are bytes after the last",
            )
        return DONE if self._ended else FEED

    def _records(self) -> None:
        """Whole records, one after the other, until one is not."""
        data, at, index, count = self._data, self._at, self.index, self._count
        size, special, top = len(data), self._limited or self._far, self._top
        keyed, budget = self._keyed, self.budget
        if not self._any:
            top = _LOW
        start = body = at
        whole = False
        try:
            while index < count and budget > 0:
                start, whole = at, False
                raw = data[at]
                at += 1
                if raw >= 0x80:
                    byte = data[at]
                    at += 1
                    if byte < 0x80:
                        raw = raw & 0x7F | byte << 7
                    else:
                        raw, at = _length(data, at - 2, index)
                end = at + (raw >> 1)
                if raw & 1:
                    raise invalid(index, "has a negative length")
                if end > size:
                    if self._ended:
                        raise invalid(index, f"has {raw >> 1} bytes, and {size - at} are left")
                    if raw >> 1 > _WHOLE:
                        start = self._begin_pieces(at, end)
                    break
                body, whole = at, True
                raw = data[at + 1]
                at += 2
                if raw >= 0x80:
                    byte = data[at]
                    at += 1
                    if byte < 0x80:
                        raw = raw & 0x7F | byte << 7
                    else:
                        raw, at = _varlong(data, at - 2, index)
                        special = special or raw >> 1 >= _FAR
                delta = (raw >> 1) ^ -(raw & 1)
                raw = data[at]
                at += 1
                if raw >= 0x80:
                    byte = data[at]
                    at += 1
                    if byte < 0x80:
                        raw = raw & 0x7F | byte << 7
                    else:
                        raw, at = _varint(data, at - 2, index)
                if raw != index + index:
                    raise invalid(index, f"has offset delta {(raw >> 1) ^ -(raw & 1)}")
                raw = data[at]
                at += 1
                if raw >= 0x80:
                    raw, at = _varint(data, at - 1, index)
                without_key = raw & 1
                if not without_key:
                    at += raw >> 1
                raw = data[at]
                at += 1
                if raw >= 0x80:
                    byte = data[at]
                    at += 1
                    if byte < 0x80:
                        raw = raw & 0x7F | byte << 7
                    else:
                        raw, at = _varint(data, at - 2, index)
                if not raw & 1:
                    at += raw >> 1
                raw = data[at]
                at += 1
                if raw:
                    if raw >= 0x80 or raw > 2 * _FEW_HEADERS or raw & 1:
                        raw, at = _varint(data, at - 1, index)
                        if raw & 1:
                            raise invalid(index, "counts its headers below 0")
                        if raw >> 1 > _FEW_HEADERS:
                            start = self._begin_pieces(body, end)
                            break
                    budget -= raw >> 1
                    at = _headers(data, at, raw >> 1, index)
                if at != end:
                    raise invalid(index, f"has {end - at} bytes more than its fields")
                if special or (keyed and without_key):
                    delta = self._judge(index, delta, bool(without_key))
                if delta > top:
                    top = delta
                index += 1
                budget -= 1
                start = at
        except IndexError:
            if whole:
                raise invalid(index, "has fields that are longer than itself") from None
            if self._ended:
                raise invalid(index, "is not there: the batch ends before it") from None
        if index > self.index:
            self._top, self._any = top, True
        self.index = index
        self._at = start
        self.budget = budget

    def _judge(self, index: int, delta: int, without_key: bool) -> int:
        """Notes a record that the topic does not take; gives the delta to the timestamp."""
        timestamp = self._base + delta
        if not _LOW <= timestamp <= _HIGH:  # a 64-bit sum wraps
            timestamp = (timestamp - _LOW & 0xFFFFFFFFFFFFFFFF) + _LOW
        reason = -1
        if self._keyed and without_key:
            reason = NO_KEY
        elif timestamp != -1 and not self._oldest <= timestamp <= self._latest:
            reason = OUT_OF_TIME
        if reason >= 0:
            self.refusals += 1
            if len(self.refused) < NAMED:
                self.refused.append((index, reason, timestamp))
        return timestamp - self._base

    def _begin_pieces(self, body: int, end: int) -> int:
        self._field, self._left = _TIMESTAMP, end - body
        self._skip = 1  # attributes
        return body

    def _piecewise(self) -> None:
        """Goes on with a record that is too large to be looked at as a whole, up to the end of the
        data.
        """
        data, index = self._data, self.index
        size = len(data)
        while self._field >= 0 and self.budget > 0:
            at = self._at
            taken = min(self._skip, size - at)
            self._at += taken
            self._skip -= taken
            self._left -= taken
            if self._skip and self._ended:
                raise invalid(index, "is longer than the rest of its batch")
            if not self._skip and self._field == _LAST:
                self._end_pieces()
                return
            if self._skip or (size - self._at < 10 and not self._ended):
                return
            at = self._at
            try:
                if self._field == _TIMESTAMP:
                    raw, after = _varlong(data, at, index)
                else:
                    raw, after = _varint(data, at, index)
            except IndexError:
                raise invalid(index, "is longer than the rest of its batch") from None
            self._at = after
            self._left -= after - at
            self._take(index, raw)
            if self._skip > self._left or self._left < 0:
                raise invalid(index, "has fields that are longer than itself")
            self.budget -= 1

    def _take(self, index: int, raw: int) -> None:
        """The next number of a record that is looked at piece by piece."""
        field = self._field
        length = 0 if raw & 1 else raw >> 1
        if field == _TIMESTAMP:
            self._delta = (raw >> 1) ^ -(raw & 1)
            self._field = _OFFSET
        elif field == _OFFSET:
            if raw != index + index:
                raise invalid(index, f"has offset delta {(raw >> 1) ^ -(raw & 1)}")
            self._field = _KEY
        elif field == _KEY:
            self._without_key = bool(raw & 1)
            self._skip, self._field = length, _VALUE
        elif field == _VALUE:
            self._skip, self._field = length, _COUNT
        elif field == _COUNT:
            if raw & 1:
                raise invalid(index, "counts its headers below 0")
            self._headers = length
            self._field = _NAME
        elif field == _NAME:
            if raw & 1:
                raise invalid(index, "has a header without a name")
            self._skip, self._field = length, _CONTENT
        else:
            self._skip, self._field = length, _NAME
            self._headers -= 1
        if self._field == _NAME and not self._headers:
            self._field = _LAST

    def _end_pieces(self) -> None:
        if self._left:
            raise invalid(self.index, f"has {self._left} bytes more than its fields")
        delta = self._delta
        if self._limited or self._far or not -_FAR < delta < _FAR or self._keyed:
            delta = self._judge(self.index, delta, self._without_key)
        self._top = max(self._top, delta) if self._any else delta
        self._any = True
        self.index += 1
        self._field = -1


def _headers(data: bytes, at: int, count: int, index: int) -> int:
    """The position after `count` headers."""
    for _ in range(count):
        raw = data[at]
        at += 1
        if raw >= 0x80:
            raw, at = _varint(data, at - 1, index)
        if raw & 1:
            raise invalid(index, "has a header without a name")
        at += raw >> 1
        raw = data[at]
        at += 1
        if raw >= 0x80:
            raw, at = _varint(data, at - 1, index)
        if not raw & 1:
            at += raw >> 1
    return at


def _length(data: bytes, at: int, index: int) -> tuple[int, int]:
    """A record's length; for one of more than five bytes Kafka has no code of its own."""
    try:
        return _varint(data, at, index)
    except ApiError as error:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, error.detail) from None


def _varint(data: bytes, at: int, index: int) -> tuple[int, int]:
    """A varint of 32 bits, still zigzag, and the position after it."""
    raw, after = _uvarint(data, at, 5, index)
    return raw & 0xFFFFFFFF, after


def _varlong(data: bytes, at: int, index: int) -> tuple[int, int]:
    """A varint of 64 bits, as above."""
    raw, after = _uvarint(data, at, 10, index)
    return raw & 0xFFFFFFFFFFFFFFFF, after


def _uvarint(data: bytes, at: int, most: int, index: int) -> tuple[int, int]:
    value = 0
    for place in range(most):
        byte = data[at + place]
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value, at + place + 1
    raise invalid(index, f"has a number of more than {most} bytes")
