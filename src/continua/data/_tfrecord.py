"""TFRecord files and the examples in them, read without TensorFlow."""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from continua._errors import FileError

#: the polynomial of CRC32C (Castagnoli), bits reflected
POLYNOMIAL = 0x82F63B78
HEADER, FOOTER = 12, 4

Words = NDArray[np.uint32]


def record_places(path: Path) -> list[tuple[int, int]]:
    """Where the records of a file begin, and how many bytes each has.

    Layout of a record: its length in 8 bytes, the masked checksum of those, the bytes, their
    masked checksum; all numbers little-endian. Only the lengths are read and checked here.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            places: list[tuple[int, int]] = []
            at = 0
            while at < size:
                file.seek(at)
                header = file.read(HEADER)
                if len(header) < HEADER:
                    raise _truncated(path, len(places), size)
                length, check = struct.unpack("<QI", header)
                if masked(crc32c(header[:8])) != check:
                    raise FileError(
                        f"{path} is damaged: the length of record {len(places):,} does not match "
                        "its checksum"
                    )
                places.append((at + HEADER, length))
                at += HEADER + length + FOOTER
                if at > size:
                    raise _truncated(path, len(places) - 1, size)
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror or error}") from error
    if not places:
        raise FileError(f"{path} is empty")
    return places


def read_record(path: Path, number: int, at: int, length: int) -> bytes:
    """The bytes of a record, if they match their checksum.

    Args:
        path: of the file.
        number: of the record, counted from 0, for what there may be to say about it.
        at: where its bytes begin.
        length: how many there are.
    """
    try:
        with path.open("rb") as file:
            file.seek(at)
            raw = file.read(length + FOOTER)
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror or error}") from error
    if len(raw) < length + FOOTER:
        raise _truncated(path, number, at + len(raw))
    body = raw[:length]
    if masked(crc32c(body)) != struct.unpack("<I", raw[length:])[0]:
        raise FileError(f"{path} is damaged: record {number:,} does not match its checksum")
    return body


def example_bytes(raw: bytes) -> dict[str, bytes]:
    """The first bytes of each feature that holds bytes, in a serialized `tf.train.Example`.

    The messages are Example { features = 1 }, Features { map feature = 1 }, whose entries are
    { key = 1, value = 2 }, and Feature { bytes_list = 1 { value = 1 } }. Numbers are left out.

    Raises:
        ValueError: for bytes that are no such message.
    """
    found: dict[str, bytes] = {}
    for features in _parts(memoryview(raw), 1):
        for entry in _parts(features, 1):
            key = next(_parts(entry, 1), memoryview(b""))
            for feature in _parts(entry, 2):
                for listed in _parts(feature, 1):
                    value = next(_parts(listed, 1), None)
                    if value is not None:
                        found[bytes(key).decode("utf-8")] = bytes(value)
    return found


def _truncated(path: Path, number: int, size: int) -> FileError:
    return FileError(f"{path} is truncated: it ends after {size:,} bytes, in record {number:,}")


# -- protocol buffers --------------------------------------------------------------------------


def _parts(message: memoryview, wanted: int) -> Iterator[memoryview]:
    """The fields of this number that hold bytes; the others are stepped over."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        number, kind = tag >> 3, tag & 7
        if kind == 0:
            _, at = _varint(message, at)
            continue
        if kind == 2:
            length, at = _varint(message, at)
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
        else:
            raise ValueError(f"a field has the unknown type {kind}")
        if at + length > len(message):
            raise ValueError("a field reaches beyond its end")
        if kind == 2 and number == wanted:
            yield message[at : at + length]
        at += length


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    """A number of seven bits a byte, the lowest first, and where it ends."""
    value = shift = 0
    while True:
        if at >= len(message) or shift > 63:
            raise ValueError("a number has no end")
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


# -- checksums ---------------------------------------------------------------------------------


def masked(crc: int) -> int:
    """A checksum as it is stored, so that it is not that of bytes with a checksum in them."""
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def crc32c(raw: bytes) -> int:
    """The CRC32C of some bytes.

    A checksum is linear over bits: the bytes are cut into lanes that are summed side by side, and
    the sums are joined in pairs, each left one first moved on by the length of the right one.

    Example:
        >>> hex(crc32c(b"123456789"))
        '0xe3069283'
    """
    table = _table()
    if len(raw) < 64:
        crc = 0xFFFFFFFF
        for byte in raw:
            crc = int(table[(crc ^ byte) & 0xFF]) ^ (crc >> 8)
        return crc ^ 0xFFFFFFFF
    lanes = 1 << (len(raw).bit_length() // 2 + 1)
    steps = -(-len(raw) // lanes)
    data = np.zeros(lanes * steps, np.uint8)
    data[-len(raw) :] = np.frombuffer(raw, np.uint8)  # zeros in front change nothing
    data[-len(raw) : len(data) - len(raw) + 4] ^= 0xFF  # as if it began with all ones
    sums: Words = np.zeros(lanes, np.uint32)
    for column in np.ascontiguousarray(data.reshape(lanes, steps).T):
        sums = table[(sums ^ column) & 0xFF] ^ (sums >> 8)
    while len(sums) > 1:
        sums = _applied(_shift(steps), sums[::2]) ^ sums[1::2]
        steps *= 2
    return int(sums[0]) ^ 0xFFFFFFFF


@functools.cache
def _table() -> Words:
    """The effect of each byte."""
    crc = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        crc = np.where(crc & 1, (crc >> 1) ^ np.uint32(POLYNOMIAL), crc >> 1)
    return crc.astype(np.uint32)


def _applied(matrix: Words, crc: Words) -> Words:
    """A matrix over bits, given by its columns, times every sum."""
    bits = (crc[:, None] >> np.arange(32, dtype=np.uint32)) & 1  # [n, 32]
    product: Words = np.bitwise_xor.reduce(bits * matrix, axis=1)
    return product


@functools.lru_cache(512)
def _shift(count: int) -> Words:
    """What so many zero bytes do to a sum, as a matrix over bits."""
    unit: Words = np.uint32(1) << np.arange(32, dtype=np.uint32)
    if count == 0:
        return unit
    if count == 1:
        byte: Words = _table()[unit & 0xFF] ^ (unit >> 8)
        return byte
    half = _shift(count // 2)
    twice = _applied(half, half)
    return _applied(_shift(1), twice) if count % 2 else twice
