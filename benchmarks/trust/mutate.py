"""Files with something wrong in them: bytes, JSON values, lines, and what is inside archives."""

from __future__ import annotations

import gzip
import io
import json
import random
import zipfile
import zlib
from typing import Any

#: values that are wrong in most places
WRONG: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2.5, 1e308, float("nan"), float("inf"), 2**31, 2**63 - 1, 10**30,
    "", "x", "\x00", "../..", "/etc/passwd", "é" * 50, [], [1], [[]], [None] * 9, {}, {"x": 1},
    {"type": "Fourier"}, {"type": "PiecewiseConstant", "size": 10**6},
)  # fmt: skip
BYTES = (b"\x00", b"\xff", b"\x7f", b"\x80", b"\n", b'"', b"{", b"[", b"9" * 20, b"-1", b"\xff" * 8)


def mutated(name: str, content: bytes, rng: random.Random) -> tuple[bytes, bool]:
    """Another content for a file of this name, and whether its inner checksums were made right."""
    times = rng.choice((1, 1, 1, 2, 4))
    if name.endswith(".gz") and rng.random() < 0.5:
        inner = gzip.decompress(content)
        return gzip.compress(_plain(name[:-3], inner, rng, times), 1), True
    if name.endswith(".npz") and rng.random() < 0.5:
        return _zipped(content, rng, times), True
    content = _plain(name, content, rng, times)
    return content, name.endswith(".gz") and _whole(content)


def _whole(content: bytes) -> bool:
    """Whether its checksums are right: a gzip stream may follow another."""
    try:
        gzip.decompress(content)
    except (OSError, EOFError, zlib.error):
        return False
    return True


def _plain(name: str, content: bytes, rng: random.Random, times: int) -> bytes:
    kind = name.rpartition(".")[2]
    for _ in range(times):
        if kind == "json" and rng.random() < 0.7:
            content = _json(content, rng)
        elif kind == "safetensors" and rng.random() < 0.5:
            content = _safetensors(content, rng)
        elif kind in ("jsonl", "csv", "md", "conllu") and rng.random() < 0.5:
            content = _lines(content, kind, rng)
        else:
            content = _bytes(content, rng)
    return content


def _bytes(content: bytes, rng: random.Random) -> bytes:
    """Some bytes changed, cut, doubled or put in."""
    if not content:
        return rng.choice(BYTES)
    # Half of the time near the beginning, where headers are.
    end = len(content) if rng.random() < 0.5 else min(len(content), 64)
    at = rng.randrange(end)
    length = min(rng.choice((1, 1, 4, 8, 64, 4096)), len(content) - at)
    match rng.randrange(7):
        case 0:
            return content[:at] + bytes([content[at] ^ 1 << rng.randrange(8)]) + content[at + 1 :]
        case 1:
            return content[:at] + rng.randbytes(length) + content[at + length :]
        case 2:
            return content[:at] + content[at + length :]
        case 3:
            return content[: at + length] + content[at:]
        case 4:
            return content[:at] + rng.choice(BYTES) + content[at:]
        case 5:
            wrong = rng.choice(BYTES)
            return content[:at] + wrong + content[at + len(wrong) :]
        case _:
            return content[:at]


def _json(content: bytes, rng: random.Random) -> bytes:
    """One value of a JSON text changed, removed or moved."""
    try:
        whole = json.loads(content)
    except (ValueError, RecursionError):
        return _bytes(content, rng)
    places: list[tuple[Any, Any]] = []

    def walk(value: Any) -> None:
        if isinstance(value, dict | list):
            for key in list(value) if isinstance(value, dict) else range(len(value)):
                places.append((value, key))
                walk(value[key])

    walk(whole)
    if not places:
        return json.dumps(rng.choice(WRONG)).encode()
    inside, key = rng.choice(places)
    match rng.randrange(6):
        case 0:
            del inside[key]
        case 1 if isinstance(inside, dict):
            inside[rng.choice(("x", "", "$basis", "type", "../x", key + "x"))] = inside.pop(key)
        case 2:
            other, place = rng.choice(places)
            inside[key] = json.loads(json.dumps(other[place]))
        case 3 if isinstance(inside[key], int | float):
            number = inside[key]
            others = (number + 1, number * 10**9, -number, number / 3, str(number), 512, 4096)
            inside[key] = rng.choice(others)
        case _:
            inside[key] = rng.choice(WRONG)
    return json.dumps(whole).encode()


def _safetensors(content: bytes, rng: random.Random) -> bytes:
    """Another header, of the right length; or another length."""
    length = int.from_bytes(content[:8], "little")
    header, rest = content[8 : 8 + length], content[8 + length :]
    if rng.random() < 0.8:
        header = _json(header, rng)
        length = len(header)
    else:
        length = rng.choice((0, length + 1, max(length - 1, 0), 2**20, 2**40, 2**63 - 1))
    return length.to_bytes(8, "little") + header + rest


def _lines(content: bytes, kind: str, rng: random.Random) -> bytes:
    """One line changed, removed, doubled or moved."""
    lines = content.splitlines(keepends=True)
    if not lines:
        return _bytes(content, rng)
    at = rng.randrange(len(lines))
    match rng.randrange(4):
        case 0:
            del lines[at]
        case 1:
            lines.insert(at, rng.choice(lines))
        case 2:
            lines[at] = (_json if kind == "jsonl" else _bytes)(lines[at].rstrip(), rng) + b"\n"
        case _:
            cells = lines[at].rstrip(b"\n").split(b"\t" if kind == "conllu" else b",")
            wrong = str(rng.choice(WRONG)).encode("utf-8", "replace")
            cells[rng.randrange(len(cells))] = wrong
            lines[at] = (b"\t" if kind == "conllu" else b",").join(cells) + b"\n"
    return b"".join(lines)


def _zipped(content: bytes, rng: random.Random, times: int) -> bytes:
    """A member of a zip file changed, under the right checksum."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(out, "w") as new:
        names = old.namelist()
        chosen = rng.choice(names)
        for name in names:
            inner = old.read(name)
            if name == chosen:
                inner = _plain("inner.npy", inner, rng, times)
                name = rng.choice((name, name, name, "x", "../x.npy", name + "x"))
            new.writestr(name, inner, zipfile.ZIP_DEFLATED)
    return out.getvalue()
