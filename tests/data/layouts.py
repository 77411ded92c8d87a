"""Small files in the official layouts, written from a seed."""

import gzip
import struct

import numpy as np

WORDS = ["the", "cat", "saw", "a", "dog", "and", "ran"]
TAGS = ["DT", "NN", "VBD", "DT", "NN", "CC", "VBD"]


def idx(array):
    return struct.pack(f">I{array.ndim}I", 0x800 + array.ndim, *array.shape) + array.tobytes()


def mnist(folder, train=40, test=20, compress=True, side=28, dot=False):
    """The four files; returns the arrays by file name."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    arrays = {}
    for part, count in (("train", train), ("t10k", test)):
        shape = (count, side, side)
        arrays[f"{part}-images-idx3-ubyte"] = random.integers(0, 256, shape, dtype=np.uint8)
        arrays[f"{part}-labels-idx1-ubyte"] = (np.arange(count) % 10).astype(np.uint8)
    for name, array in arrays.items():
        spelling = name.replace("-idx", ".idx") if dot else name
        if compress:
            (folder / f"{spelling}.gz").write_bytes(gzip.compress(idx(array), 1))
        else:
            (folder / spelling).write_bytes(idx(array))
    return arrays


def cifar10(folder, count=20):
    """Six files of records; returns them as arrays by file name."""
    names = [f"data_batch_{k}.bin" for k in range(1, 6)] + ["test_batch.bin"]
    return _cifar(folder, dict.fromkeys(names, count), 1, 10)


def cifar100(folder, train=200, test=100):
    return _cifar(folder, {"train.bin": train, "test.bin": test}, 2, 100)


def _cifar(folder, counts, label_bytes, classes):
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    files = {}
    for name, count in counts.items():
        records = random.integers(0, 256, (count, label_bytes + 3072), dtype=np.uint8)
        records[:, 0] = random.integers(0, 20, count)  # the coarse label, if there are two
        records[:, label_bytes - 1] = np.arange(count) % classes
        (folder / name).write_bytes(records.tobytes())
        files[name] = records
    return files


def line(number, form, tag):
    return f"{number}\t{form}\t_\t_\t{tag}\t_\t0\tdep\t_\t_\n"


def sentence(words, tags=TAGS, comment="# sent_id = x\n"):
    pairs = zip(words, tags, strict=False)
    return comment + "".join(line(i, w, t) for i, (w, t) in enumerate(pairs, 1)) + "\n"


def treebank(folder, prefix="en_ewt", compress=False, **parts):
    """Three files; `train`, `dev` and `test` replace what they hold."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {
        "train": sentence(WORDS) + sentence(WORDS[:3]),
        "dev": sentence(["the", "bird"], ["DT", "NN"]),
        "test": sentence(["the", "dog", "!"], ["DT", "NN", "."]),
    } | parts
    for part, text in texts.items():
        path = folder / f"{prefix}-ud-{part}.conllu"
        if compress:
            path.with_name(path.name + ".gz").write_bytes(gzip.compress(text.encode()))
        else:
            path.write_text(text, encoding="utf-8")
    return folder


def varint(value):
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def message(number, body):
    """A field of a protocol buffer that holds bytes."""
    return varint(number << 3 | 2) + varint(len(body)) + body


def example(features):
    """A tf.train.Example of bytes, and beside them numbers, which readers leave out."""
    entries = b""
    for name, value in features.items():
        kind = message(1, message(1, value)) if isinstance(value, bytes) else message(2, value[0])
        entries += message(1, message(1, name.encode()) + message(2, kind))
    return message(1, entries)


def _divided(crc):
    """Eight bits of the division that CRC32C is, one by one."""
    for _ in range(8):
        crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc


_DIVIDED = [_divided(byte) for byte in range(256)]


def slow_crc32c(raw):
    """Byte by byte."""
    crc = 0xFFFFFFFF
    for byte in raw:
        crc = _DIVIDED[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def masked(raw):
    crc = slow_crc32c(raw)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def tfrecord(path, bodies):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        for body in bodies:
            length = struct.pack("<Q", len(body))
            file.write(length + masked(length) + body + masked(body))


def bair(folder, train=(2, 1), test=1, frames=2, side=64):
    """Files of so many records each; returns the clips `[N, T, side, side, 3]` by part."""
    random = np.random.default_rng(0)
    clips = {"train": [], "test": []}
    for part, counts in (("train", train), ("test", (test,))):
        for n, count in enumerate(counts):
            made = random.integers(0, 256, (count, frames, side, side, 3), dtype=np.uint8)
            clips[part].extend(made)
            bodies = [
                example(
                    {
                        key: value
                        for i, frame in enumerate(clip)
                        for key, value in (
                            (f"{i}/action", (b"\x0a\x04" + b"\0\0\x80?",)),
                            (f"{i}/image_main/encoded", b"other"),
                            (f"{i}/image_aux1/encoded", frame.tobytes()),
                        )
                    }
                )
                for clip in made
            ]
            tfrecord(folder / "softmotion30_44k" / part / f"traj_{n}_to_9.tfrecords", bodies)
    return {part: np.stack(found) for part, found in clips.items()}
