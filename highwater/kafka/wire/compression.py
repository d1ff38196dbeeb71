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


def decompress(codec: int, data: bytes) -> bytes:
    """Raises DecompressionError for an unknown codec or damaged data."""
    try:
        match codec:
            case Compression.NONE:
                return data
            case Compression.GZIP:
                return gzip.decompress(data)
            case Compression.SNAPPY:
                return _decompress_snappy(data)
            case Compression.LZ4:
                # not `lz4.frame.decompress`, which believes the size that the frame claims
                return bytes(lz4.frame.LZ4FrameDecompressor().decompress(data))
            case Compression.ZSTD:
                return zstandard.ZstdDecompressor().decompressobj().decompress(data)
    except (OSError, EOFError, RuntimeError, MemoryError, zlib.error, zstandard.ZstdError) as error:
        raise DecompressionError(f"{Compression(codec).name.lower()}: {error}") from error
    except cramjam.DecompressionError as error:
        raise DecompressionError(f"snappy: {error}") from error
    raise DecompressionError(f"compression codec {codec} does not exist")


def _decompress_snappy(data: bytes) -> bytes:
    if not data.startswith(_XERIAL_MAGIC):
        return bytes(cramjam.snappy.decompress_raw(data))
    parts = []
    position = len(_XERIAL_HEADER)
    while position + 4 <= len(data):
        (size,) = unpack_from(">i", data, position)
        position += 4
        if size < 0 or position + size > len(data):
            raise DecompressionError("snappy: a block is longer than the batch")
        parts.append(bytes(cramjam.snappy.decompress_raw(data[position : position + size])))
        position += size
    return b"".join(parts)
