"""Archives that unpack to far more than they are, or elsewhere."""

import gzip
import io
import tarfile
import zipfile

import numpy as np
import pytest

import continua as ct
from continua.data import load
from continua.data._download import unpack
from continua.data._idx import read_idx

MUCH = 48 * 2**20


def zeros(path, size=MUCH):
    with gzip.open(path, "wb", compresslevel=6) as file:
        for _ in range(size // 2**20):
            file.write(bytes(2**20))
    return path


def test_a_gzip_bomb(tmp_path):
    path = zeros(tmp_path / "train-images-idx3-ubyte.gz")
    assert path.stat().st_size < 2**17
    with pytest.raises(ct.FileError, match="unpacks to more than"):
        read_idx(path)


def archived(path, *members):
    with tarfile.open(path, "w:gz") as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            if isinstance(content, str):
                info.type, info.linkname = tarfile.SYMTYPE, content
                tar.addfile(info)
            else:
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    return path


@pytest.mark.parametrize("target", ["/etc/passwd", "../../secret", "other.bin"])
def test_a_link_in_a_tar(tmp_path, target):
    path = archived(tmp_path / "a.tar.gz", ("other.bin", b"x"), ("folder/data.bin", target))
    with pytest.raises(ct.FileError, match=r"folder/data\.bin is a link"):
        unpack(path, ["data.bin"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_sparse_file_in_a_tar(tmp_path):
    """Half a kilobyte that stands for 8 GB of zeros."""
    header = bytearray(tarfile.TarInfo("data.bin").tobuf(tarfile.GNU_FORMAT))
    number = b"%011o\0" % (2**33 - 1)
    header[156:157], header[386:398], header[483:495] = b"S", number, number
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(bytes(header) + bytes(1024)))
    with pytest.raises(ct.FileError, match=r"data\.bin is a link or sparse"):
        unpack(tmp_path / "a.tar.gz", ["data.bin"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["data.bin", "something else"])
def test_a_tar_bomb(tmp_path, name):
    path = archived(tmp_path / "a.tar.gz", (name, bytes(MUCH)), ("data.bin", b"x"))
    with pytest.raises(ct.FileError, match="holds more than"):
        unpack(path, ["data.bin"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_flipped_bit_in_a_tar(tmp_path):
    path = tmp_path / "a.tar.gz"
    with tarfile.open(path, "w:gz", compresslevel=0) as tar:
        info = tarfile.TarInfo("data.bin")
        info.size = 2000
        tar.addfile(info, io.BytesIO(b"x" * 2000))
    content = bytearray(path.read_bytes())
    content[content.index(b"xxxx") + 9] ^= 1
    path.write_bytes(content)
    with pytest.raises(ct.FileError, match="CRC check failed"):
        unpack(path, ["data.bin"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_tar_that_is_none(tmp_path):
    path = zeros(tmp_path / "a.tar.gz")
    with pytest.raises(ct.FileError, match=r"a\.tar\.gz"):
        unpack(path, ["data.bin"], tmp_path / "out")


def test_a_zip_bomb(tmp_path):
    np.savez_compressed(tmp_path / "clips.npz", clips=np.zeros((48, 4, 512, 512), np.uint8))
    with pytest.raises(ct.FileError, match="unpacks to"):
        load("frames", folder=tmp_path)


def test_a_picture_bomb(tmp_path):
    Image = pytest.importorskip("PIL.Image")
    (tmp_path / "clip").mkdir()
    Image.new("RGB", (8_000, 8_000)).save(tmp_path / "clip" / "frame0.png")
    assert (tmp_path / "clip" / "frame0.png").stat().st_size < 2**20
    with pytest.raises(ct.FileError, match=r"frame0\.png .* unpacks to 192,000,000 bytes"):
        load("frames", folder=tmp_path)


def test_a_member_that_is_no_array(tmp_path):
    clips = np.zeros((6, 2, 4, 4), np.uint8)
    np.savez_compressed(tmp_path / "clips.npz", clips=clips)
    with zipfile.ZipFile(tmp_path / "clips.npz", "a") as archive:
        archive.writestr("readme.txt", "not an array")
    assert len(load("frames", folder=tmp_path).test) == 1
    with zipfile.ZipFile(tmp_path / "clips.npz", "w") as archive:
        archive.writestr("clips.txt", "not an array")
    with pytest.raises(ct.FileError, match=r"clips\.npz holds no arrays of clips"):
        load("frames", folder=tmp_path)


@pytest.mark.parametrize("shape", ["(99999999, 9, 9, 9)", "(9999999999999, 9999999, 99, 9)"])
def test_an_array_that_is_not_there(tmp_path, shape):
    header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    content = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + b"x"
    (tmp_path / "clips.npy").write_bytes(content)
    with pytest.raises(ct.FileError, match="cannot be read as arrays"):
        load("frames", folder=tmp_path)
    (tmp_path / "clips.npy").unlink()
    with zipfile.ZipFile(tmp_path / "clips.npz", "w") as archive:
        archive.writestr("clips.npy", content)
    with pytest.raises(ct.FileError, match="cannot be read as arrays"):
        load("frames", folder=tmp_path)
