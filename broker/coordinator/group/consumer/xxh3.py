"""XXH3 with 64 bits, seed 0: the hash by which Kafka 4.1 and later tell metadata apart (KIP-1101).

Written from the algorithm's specification (xxHash, doc/xxhash_spec.md); the standard library has no
such hash, and a group's topics are hashed only when they change.
"""

from __future__ import annotations

from struct import unpack_from
from typing import Final

_MASK: Final = (1 << 64) - 1
_MASK32: Final = (1 << 32) - 1
_P32_1: Final = 0x9E3779B1
_P32_2: Final = 0x85EBCA77
_P32_3: Final = 0xC2B2AE3D
_P64_1: Final = 0x9E3779B185EBCA87
_P64_2: Final = 0xC2B2AE3D27D4EB4F
_P64_3: Final = 0x165667B19E3779F9
_P64_4: Final = 0x85EBCA77C2B2AE63
_P64_5: Final = 0x27D4EB2F165667C5
_MX1: Final = 0x165667919E3779F9
_MX2: Final = 0x9FB21C651E98DF25
_SECRET: Final = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221"
    "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb"
    "170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
_STRIPE, _STEP = 64, 8
_STRIPES_IN_BLOCK: Final = (len(_SECRET) - _STRIPE) // _STEP


def xxh3_64(data: bytes) -> int:
    """The hash, without a sign."""
    size = len(data)
    if size <= 16:
        return _short(data, size)
    if size <= 128:
        return _medium(data, size)
    if size <= 240:
        return _longer(data, size)
    return _long(data, size)


def _u64(data: bytes, at: int) -> int:
    return int(unpack_from("<Q", data, at)[0])


def _u32(data: bytes, at: int) -> int:
    return int(unpack_from("<I", data, at)[0])


def _folded(one: int, other: int) -> int:
    product = one * other
    return (product & _MASK) ^ (product >> 64)


def _xxh64_end(value: int) -> int:
    value ^= value >> 33
    value = value * _P64_2 & _MASK
    value ^= value >> 29
    value = value * _P64_3 & _MASK
    return value ^ value >> 32


def _end(value: int) -> int:
    value ^= value >> 37
    value = value * _MX1 & _MASK
    return value ^ value >> 32


def _rotated(value: int, by: int) -> int:
    return (value << by | value >> 64 - by) & _MASK


def _short(data: bytes, size: int) -> int:
    if size > 8:
        low = _u64(data, 0) ^ _u64(_SECRET, 24) ^ _u64(_SECRET, 32)
        high = _u64(data, size - 8) ^ _u64(_SECRET, 40) ^ _u64(_SECRET, 48)
        swapped = int.from_bytes(low.to_bytes(8, "little"), "big")
        return _end((size + swapped + high + _folded(low, high)) & _MASK)
    if size >= 4:
        joined = _u32(data, size - 4) + (_u32(data, 0) << 32)
        value = joined ^ _u64(_SECRET, 8) ^ _u64(_SECRET, 16)
        value ^= _rotated(value, 49) ^ _rotated(value, 24)
        value = value * _MX2 & _MASK
        value ^= (value >> 35) + size
        value = value * _MX2 & _MASK
        return value ^ value >> 28
    if size:
        joined = data[0] << 16 | data[size >> 1] << 24 | data[size - 1] | size << 8
        return _xxh64_end(joined ^ _u32(_SECRET, 0) ^ _u32(_SECRET, 4))
    return _xxh64_end(_u64(_SECRET, 56) ^ _u64(_SECRET, 64))


def _mixed(data: bytes, at: int, secret: int) -> int:
    return _folded(
        _u64(data, at) ^ _u64(_SECRET, secret), _u64(data, at + 8) ^ _u64(_SECRET, secret + 8)
    )


def _medium(data: bytes, size: int) -> int:
    value = size * _P64_1
    for part in range((size - 1) // 32, -1, -1):
        value += _mixed(data, 16 * part, 32 * part)
        value += _mixed(data, size - 16 * (part + 1), 32 * part + 16)
    return _end(value & _MASK)


def _longer(data: bytes, size: int) -> int:
    value = size * _P64_1
    for part in range(8):
        value += _mixed(data, 16 * part, 16 * part)
    value = _end(value & _MASK)
    for part in range(8, size // 16):
        value += _mixed(data, 16 * part, 16 * (part - 8) + 3)
    value += _mixed(data, size - 16, 136 - 17)
    return _end(value & _MASK)


def _long(data: bytes, size: int) -> int:
    lanes = [_P32_3, _P64_1, _P64_2, _P64_3, _P64_4, _P32_2, _P64_5, _P32_1]
    stripes = (size - 1) // _STRIPE
    for stripe in range(stripes):
        place = stripe % _STRIPES_IN_BLOCK
        _accumulate(lanes, data, stripe * _STRIPE, place * _STEP)
        if place == _STRIPES_IN_BLOCK - 1:
            _scramble(lanes)
    _accumulate(lanes, data, size - _STRIPE, len(_SECRET) - _STRIPE - 7)
    value = size * _P64_1
    for i in range(4):
        value += _folded(
            lanes[2 * i] ^ _u64(_SECRET, 11 + 16 * i), lanes[2 * i + 1] ^ _u64(_SECRET, 19 + 16 * i)
        )
    return _end(value & _MASK)


def _accumulate(lanes: list[int], data: bytes, at: int, secret: int) -> None:
    for i in range(8):
        value = _u64(data, at + 8 * i)
        keyed = value ^ _u64(_SECRET, secret + 8 * i)
        lanes[i ^ 1] = (lanes[i ^ 1] + value) & _MASK
        lanes[i] = (lanes[i] + (keyed & _MASK32) * (keyed >> 32)) & _MASK


def _scramble(lanes: list[int]) -> None:
    for i, lane in enumerate(lanes):
        mixed = lane ^ lane >> 47 ^ _u64(_SECRET, len(_SECRET) - _STRIPE + 8 * i)
        lanes[i] = mixed * _P32_1 & _MASK
