"""The codecs of a record batch, by the number in its attributes (0 none, 1 gzip, 2 snappy, 3
lz4, 4 zstd).

A payload is opened and made part by part (`opened`, `Compressor`), so that memory is bounded
whatever it opens to.  Snappy has two framings: Java's clients write Xerial's (a magic, then blocks
with a length before each), librdkafka writes one raw block.  Both are read; Xerial's is written.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
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


class TooLarge(DecompressionError):
    """The payload decompresses to more than `most_opened` bytes."""


LZ4_DEFAULT = 9
"""Kafka's default of compression.lz4.level, which selects the fast compressor, also here."""
_LZ4_HIGHEST = 12


class Compressor:
    """The records section of a batch, compressed part by part; `level` as in Kafka's
    compression.*.level, None for the codec's default.
    """

    def __init__(self, codec: Compression, level: int | None = None) -> None:
        self._begun = b""
        self._add: Callable[[bytes], bytes]
        self._end: Callable[[], bytes]
        match codec:
            case Compression.NONE:
                self._add, self._end = bytes, bytes
            case Compression.GZIP:
                # Kafka's -1 means zlib's own default, 6
                gzip = zlib.compressobj(6 if level is None or level < 0 else level, wbits=31)
                self._add, self._end = gzip.compress, gzip.flush
            case Compression.SNAPPY:
                snappy = _Xerial()
                self._add, self._end = snappy.compress, snappy.flush
            case Compression.LZ4:
                fast = level is None or level == LZ4_DEFAULT
                depth = 0 if level is None or fast else min(level, _LZ4_HIGHEST)
                # Java's reader takes independent blocks alone
                lz4frame = lz4.frame.LZ4FrameCompressor(compression_level=depth, block_linked=False)
                self._begun = bytes(lz4frame.begin())
                self._add, self._end = lz4frame.compress, lz4frame.flush
            case Compression.ZSTD:
                zstd = zstandard.ZstdCompressor(3 if level is None else level).compressobj()
                self._add, self._end = zstd.compress, zstd.flush

    def add(self, part: bytes) -> bytes:
        """Takes a part of the input; returns the output that is ready."""
        begun, self._begun = self._begun, b""
        return begun + self._add(part)

    def end(self) -> bytes:
        """The rest of the output."""
        return self._begun + self._end()


class _Xerial:
    def __init__(self) -> None:
        self._rest = b""
        self._out = _XERIAL_HEADER

    def compress(self, part: bytes) -> bytes:
        data = self._rest + part
        whole = len(data) - len(data) % _XERIAL_BLOCK
        self._rest = data[whole:]
        return self._blocks(data[:whole])

    def flush(self) -> bytes:
        return self._blocks(self._rest)

    def _blocks(self, data: bytes) -> bytes:
        parts, self._out = [self._out], b""
        for start in range(0, len(data), _XERIAL_BLOCK):
            block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK]))
            parts += (pack(">i", len(block)), block)
        return b"".join(parts)


def compress(codec: Compression, data: bytes, level: int | None = None) -> bytes:
    """The records section of a batch, compressed at once."""
    compressor = Compressor(codec, level)
    return compressor.add(data) + compressor.end()


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
    if codec == Compression.NONE:
        return data
    found = list(opened(codec, data))
    return found[0] if len(found) == 1 else b"".join(found)


_INPUT_BYTES = 1 << 16
"""How much input a decompressor gets at once: it copies whatever it does not use yet."""
_PART_BYTES = 1 << 18
"""The size of the parts in which decompressors return output, so that none is made in vain."""


def opened(codec: int, data: bytes, part_bytes: int = _PART_BYTES) -> Iterator[bytes]:
    """The decompressed payload, in parts of about `part_bytes` (a block of snappy is one part).

    Raises DecompressionError, at the part where the mistake is.
    """
    most, size = most_opened(len(data)), 0
    try:
        for part in _opener(codec)(data, part_bytes):
            size += len(part)
            if size > most:
                raise TooLarge(f"{len(data)} bytes open to more than {most}")
            yield part
    except (OSError, EOFError, RuntimeError, MemoryError, zlib.error, zstandard.ZstdError) as error:
        raise DecompressionError(f"{Compression(codec).name.lower()}: {error}") from error
    except cramjam.DecompressionError as error:
        raise DecompressionError(f"snappy: {error}") from error


def _opener(codec: int) -> Callable[[bytes, int], Iterator[bytes]]:
    match codec:
        case Compression.GZIP:
            return _gzip_parts
        case Compression.SNAPPY:
            return _snappy_parts
        case Compression.LZ4:
            return _lz4_parts
        case Compression.ZSTD:
            return _zstd_parts
    raise DecompressionError(f"compression codec {codec} does not exist")


_GZIP_HEADER = 10


def _gzip_parts(data: bytes, part_bytes: int) -> Iterator[bytes]:
    """The output of all members, one after the other, as Java's GZIPInputStream reads them."""
    if len(data) < _GZIP_HEADER:
        raise DecompressionError(f"gzip: {len(data)} bytes are no stream")
    while data:
        member, at, given = zlib.decompressobj(wbits=31), 0, b""
        while not member.eof:
            if not given:
                given, at = data[at : at + _INPUT_BYTES], at + _INPUT_BYTES
            ended = not given
            part = member.decompress(given, part_bytes)
            given = member.unconsumed_tail
            if part:
                yield part
            elif ended and not member.eof:
                raise EOFError("the data ends before the end of the stream")
        data = (member.unused_data + data[at:]).lstrip(b"\0")


def _lz4_parts(data: bytes, part_bytes: int) -> Iterator[bytes]:
    # not `lz4.frame.decompress`, which believes the size that the frame claims
    frame = lz4.frame.LZ4FrameDecompressor()
    at = 0
    while not frame.eof:
        given = b""
        if frame.needs_input:
            if at >= len(data):
                raise DecompressionError("lz4: the data ends before the end of the frame")
            given, at = data[at : at + _INPUT_BYTES], at + _INPUT_BYTES
        yield bytes(frame.decompress(given, part_bytes))


def _zstd_parts(data: bytes, part_bytes: int) -> Iterator[bytes]:
    if not data:
        return  # as Java's reader has it
    _check_zstd_frames(data)
    reader = zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True)
    while part := reader.read(part_bytes):
        yield part


_ZSTD_BLOCK_HEADER = 3
_ZSTD_RLE = 1


def _check_zstd_frames(data: bytes) -> None:
    """That the last frame is whole, which the reader does not tell (RFC 8878, section 3.1.1)."""
    at = 0
    while True:
        parameters = zstandard.get_frame_parameters(data[at : at + 18])
        at += zstandard.frame_header_size(data[at : at + 18])
        last = False
        while not last:
            header = int.from_bytes(data[at : at + _ZSTD_BLOCK_HEADER], "little")
            last, rle = bool(header & 1), header >> 1 & 3 == _ZSTD_RLE
            at += _ZSTD_BLOCK_HEADER + (1 if rle else header >> 3)
            if at > len(data):
                raise DecompressionError("zstd: the data ends before the end of the frame")
        at += 4 if parameters.has_checksum else 0
        if at > len(data):
            raise DecompressionError("zstd: the data ends before the frame's checksum")
        if at == len(data):
            return


def _snappy_parts(data: bytes, part_bytes: int) -> Iterator[bytes]:
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
        raise TooLarge(f"snappy: a block claims {claimed} bytes, more than {most}")
    return bytes(cramjam.snappy.decompress_raw(block))
