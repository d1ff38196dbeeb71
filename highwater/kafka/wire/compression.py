"""The codecs of a record batch, by the number in its attributes (0 none, 1 gzip, 2 snappy, 3
lz4, 4 zstd).

The broker passes compressed batches through untouched.  Only clients, tools, the search for a
timestamp inside one batch, and topics whose compression.type names a codec use this module. Snappy
has two framings: Java's clients write Xerial's (a magic, then blocks with a length before each),
librdkafka writes one raw block.  Both are read; Xerial's is written.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from enum import IntEnum
from struct import pack, unpack_from

import cramjam
import lz4.frame
import zstandard

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + pack(">ii", 1, 1)
_XERIAL_BLOCK = 32 * 1024


class Compression(IntEnum):
    """Bits 0-2 of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class DecompressionError(ValueError):
    """The payload of a batch is not what its attributes say."""


LZ4_DEFAULT = 9
"""Kafka's default of compression.lz4.level, which selects the fast compressor, also here."""
_LZ4_HIGHEST = 12


def compress(codec: Compression, data: bytes, level: int | None = None) -> bytes:
    """The records section of a batch, compressed; `level` as in Kafka's compression.*.level, None
    for the codec's default.
    """
    match codec:
        case Compression.NONE:
            return data
        case Compression.GZIP:
            # Kafka's -1 means zlib's own default, 6
            return gzip.compress(data, 6 if level is None or level < 0 else level, mtime=0)
        case Compression.SNAPPY:
            parts = [_XERIAL_HEADER]
            for start in range(0, len(data), _XERIAL_BLOCK):
                block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK]))
                parts += (pack(">i", len(block)), block)
            return b"".join(parts)
        case Compression.LZ4:
            fast = level is None or level == LZ4_DEFAULT
            depth = 0 if level is None or fast else min(level, _LZ4_HIGHEST)
            return bytes(lz4.frame.compress(data, compression_level=depth))
        case Compression.ZSTD:
            return zstandard.ZstdCompressor(3 if level is None else level).compress(data)


OPENED_BYTES = 64 << 20
OPENED_TIMES = 16


def most_opened(size: int) -> int:
    """How many bytes a payload of `size` may open to.

    A zstd frame can hold thirty thousand times its size: what comes from the network, or was stored
    as it came, is opened up to here and no further.
    """
    return max(OPENED_BYTES, OPENED_TIMES * size)


def decompress(codec: int, data: bytes) -> bytes:
    """Raises DecompressionError for an unknown codec, damaged data, or more than `most_opened`."""
    try:
        match codec:
            case Compression.NONE:
                return data
            case Compression.GZIP:
                return _joined(_gzip_parts(data), data)
            case Compression.SNAPPY:
                return _joined(_snappy_parts(data), data)
            case Compression.LZ4:
                return _joined(_lz4_parts(data), data)
            case Compression.ZSTD:
                return _joined(_zstd_parts(data), data)
    except (OSError, EOFError, RuntimeError, MemoryError, zlib.error, zstandard.ZstdError) as error:
        raise DecompressionError(f"{Compression(codec).name.lower()}: {error}") from error
    except cramjam.DecompressionError as error:
        raise DecompressionError(f"snappy: {error}") from error
    raise DecompressionError(f"compression codec {codec} does not exist")


_PART_BYTES = 1 << 18
"""Decompressors give their output in parts of this size, so that none is made in vain."""


def _joined(parts: Iterator[bytes], data: bytes) -> bytes:
    found, size, most = [], 0, most_opened(len(data))
    for part in parts:
        size += len(part)
        if size > most:
            raise DecompressionError(f"{len(data)} bytes open to more than {most}")
        found.append(part)
    return found[0] if len(found) == 1 else b"".join(found)


def _gzip_parts(data: bytes) -> Iterator[bytes]:
    """Of each member, one after another, as Java's GZIPInputStream reads them."""
    while data:
        member = zlib.decompressobj(wbits=31)
        while not member.eof:
            part = member.decompress(data, _PART_BYTES)
            data = member.unconsumed_tail
            yield part
            if not part and not data and not member.eof:
                raise EOFError("the data ends before the end of the stream")
        data = member.unused_data.lstrip(b"\0")


def _lz4_parts(data: bytes) -> Iterator[bytes]:
    # not `lz4.frame.decompress`, which believes the size that the frame claims
    frame = lz4.frame.LZ4FrameDecompressor()
    yield bytes(frame.decompress(data, _PART_BYTES))
    while not frame.eof and not frame.needs_input:
        yield bytes(frame.decompress(b"", _PART_BYTES))


def _zstd_parts(data: bytes) -> Iterator[bytes]:
    reader = zstandard.ZstdDecompressor().stream_reader(data)
    while part := reader.read(_PART_BYTES):
        yield part


def _snappy_parts(data: bytes) -> Iterator[bytes]:
    most = most_opened(len(data))
    if not data.startswith(_XERIAL_MAGIC):
        yield _snappy_block(data, most)
        return
    position = len(_XERIAL_HEADER)
    while position + 4 <= len(data):
        (size,) = unpack_from(">i", data, position)
        position += 4
        if size < 0 or position + size > len(data):
            raise DecompressionError("snappy: a block is longer than the batch")
        yield _snappy_block(data[position : position + size], most)
        position += size


def _snappy_block(block: bytes, most: int) -> bytes:
    claimed = cramjam.snappy.decompress_raw_len(block)
    if claimed > most:  # memory is set aside for as much as it claims
        raise DecompressionError(f"snappy: a block claims {claimed} bytes, more than {most}")
    return bytes(cramjam.snappy.decompress_raw(block))
