"""TFRecord files, against records that are written here byte by byte."""

import struct

import numpy as np
import pytest

import continua as ct
from continua.data._tfrecord import crc32c, example_bytes, masked, read_record, record_places
from data import layouts


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
    ],
)
def test_published_checksums(raw, expected):
    assert crc32c(raw) == expected


@pytest.mark.parametrize("size", [1, 3, 4, 63, 64, 65, 127, 1000, 4097])
def test_checksums_by_lanes_are_those_byte_by_byte(size):
    raw = np.random.default_rng(size).bytes(size)
    assert crc32c(raw) == layouts.slow_crc32c(raw)
    assert struct.pack("<I", masked(crc32c(raw))) == layouts.masked(raw)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "some.tfrecords"
    layouts.tfrecord(path, [b"first", b"", bytes(range(256)) * 3])
    return path


def test_records_are_found_and_read(file):
    places = record_places(file)
    assert [length for _, length in places] == [5, 0, 768]
    bodies = [read_record(file, i, *place) for i, place in enumerate(places)]
    assert bodies == [b"first", b"", bytes(range(256)) * 3]


@pytest.mark.parametrize("cut", [1, 4, 5, 700, 772])
def test_a_truncated_record_is_named(file, cut):
    file.write_bytes(file.read_bytes()[:-cut])
    with pytest.raises(ct.FileError, match=r"some.tfrecords is truncated: .* in record 2"):
        record_places(file)


def test_a_record_that_was_cut_after_it_was_found_is_named(file):
    place = record_places(file)[2]
    file.write_bytes(file.read_bytes()[:-10])
    with pytest.raises(ct.FileError, match=r"truncated: .* in record 2"):
        read_record(file, 2, *place)


def changed(path, at):
    raw = bytearray(path.read_bytes())
    raw[at] ^= 1
    path.write_bytes(raw)


def test_a_changed_bit_is_named(file):
    changed(file, 12)
    places = record_places(file)
    with pytest.raises(ct.FileError, match="damaged: record 0 does not match its checksum"):
        read_record(file, 0, *places[0])
    read_record(file, 1, *places[1])


def test_a_changed_length_is_named(file):
    changed(file, 21)  # the second record begins after 12 + 5 + 4 bytes
    with pytest.raises(ct.FileError, match="length of record 1 does not match its checksum"):
        record_places(file)


def test_an_empty_or_missing_file_is_named(tmp_path):
    (tmp_path / "a").touch()
    with pytest.raises(ct.FileError, match="a is empty"):
        record_places(tmp_path / "a")
    with pytest.raises(ct.FileError, match="b cannot be read"):
        record_places(tmp_path / "b")


def test_examples_are_parsed():
    raw = layouts.example({"0/x": b"\x01" * 300, "n": (b"\x0a\x04abcd",), "ü": b""})
    assert example_bytes(raw) == {"0/x": b"\x01" * 300, "ü": b""}
    # Fields of other kinds are stepped over: a number, 8 bytes, 4 bytes.
    other = b"\x10\x85\x01" + b"\x19" + bytes(8) + b"\x25" + bytes(4)
    assert example_bytes(other + raw) == example_bytes(raw)


@pytest.mark.parametrize(
    ("raw", "match"),
    [
        (b"\x0a\x05ab", "beyond its end"),
        (b"\x0a", "no end"),
        (b"\xff" * 12, "no end"),
        (b"\x0b", "unknown type 3"),
    ],
)
def test_bytes_that_are_no_example(raw, match):
    with pytest.raises(ValueError, match=match):
        example_bytes(raw)
