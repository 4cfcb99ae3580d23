"""Paths that a person gives → the files to import, in a stable order. Does I/O."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

_TRANSCRIPTS = (".jsonl", ".json", ".ndjson", ".jsonl.zst", ".json.zst", ".db", ".sqlite", ".sqlite3", ".af")
"""How names of transcripts end."""
_BESIDE_DATABASES = ("-wal", "-shm", "-journal")
_CACHES = frozenset(
    ".git .hg .svn .cache .venv venv node_modules __pycache__ .npm .pnpm-store .yarn .cargo .rustup .gradle .m2 .tox "
    ".nox .mypy_cache .ruff_cache .pytest_cache .Trash Trash site-packages".split()
)
"""Folders that hold no transcripts and many files."""
_OTHERS = frozenset(
    ".md .txt .log .html .htm .js .ts .tsx .jsx .py .pyc .rb .go .rs .c .h .cpp .java .sh .toml .yaml .yml .ini "
    ".cfg .conf .pid .xml .csv .tsv .parquet .png .jpg .jpeg .gif .webp .svg .ico .pdf .mp3 .mp4 .wav .mov .zip "
    ".gz .bz2 .lock .xz .7z .so .dylib .dll .exe .bin .ttf .woff .woff2 .map .dat .bak .tmp .swp .tar".split()
)
"""Ends of names that are no transcripts."""
_OPENINGS = (b"{", b"[", b"SQLite format 3\x00", b"\x28\xb5\x2f\xfd")
"""How transcripts begin: JSON, SQLite, Zstandard."""
_HEAD_BYTES = 4096


@dataclass(frozen=True)
class Found:
    """A file to import."""

    path: Path
    named: bool
    """A person named it. Otherwise it was come across, and may well be in no format that is known."""


@dataclass(frozen=True)
class Trouble:
    """A path that cannot be read, and why."""

    path: Path
    reason: str


@dataclass(frozen=True)
class Passed:
    """A file or folder that is no transcript, or not wanted; counted by reason."""

    path: Path
    reason: str


@dataclass(frozen=True)
class Wanted:
    """Globs over the name of a file or folder, and over its path below the folder that was named.

    `*` also crosses folders.
    """

    include: Sequence[str] = ()
    """Of files; none: all."""
    exclude: Sequence[str] = ()
    """Of files and folders."""

    def why_not(self, relative: str, *, folder: bool = False) -> str | None:
        name = relative.rpartition("/")[2]

        def matches(globs: Sequence[str]) -> bool:
            return any(fnmatchcase(name, glob) or fnmatchcase(relative, glob) for glob in globs)

        if matches(self.exclude):
            return "excluded"
        return "not included" if self.include and not folder and not matches(self.include) else None


Step = Found | Trouble | Passed


_ALL = Wanted()


def walk(paths: Sequence[Path], wanted: Wanted = _ALL) -> Iterator[Step]:
    """Each file once, by whichever path it is reached first; folders in the order of their names."""
    seen: set[_Identity] = set()
    waiting = [_Place(path, path.name, named=True) for path in reversed(paths)]
    while waiting:
        step = _visit(waiting.pop(), wanted, seen)
        if isinstance(step, list):
            waiting += reversed(step)
        else:
            yield step


_Identity = tuple[int, int]
"""Device and inode."""


@dataclass(frozen=True)
class _Place:
    """Somewhere to look."""

    path: Path
    relative: str
    """To the folder that was named."""
    named: bool = False
    above: tuple[_Identity, ...] = ()
    """The folders it is in."""


def _visit(place: _Place, wanted: Wanted, seen: set[_Identity]) -> Step | list[_Place]:
    """What is there; of a folder, the places in it."""
    try:
        status = place.path.stat()
        identity = (status.st_dev, status.st_ino)
        if stat.S_ISDIR(status.st_mode):
            return _visit_folder(place, identity, wanted, seen)
        if not stat.S_ISREG(status.st_mode):
            return Trouble(place.path, f"is {_kind(status.st_mode)}, not a file")
        reason = wanted.why_not(place.relative) or (None if place.named else _no_transcript(place.path))
        if reason is None and identity in seen:
            reason = "the same file again"
        if reason:
            return Passed(place.path, reason)
        if not os.access(place.path, os.R_OK):
            return Trouble(place.path, "permission denied")
    except OSError as error:
        return Trouble(place.path, _explained(place.path, error))
    seen.add(identity)
    return Found(place.path, place.named)


def _visit_folder(place: _Place, identity: _Identity, wanted: Wanted, seen: set[_Identity]) -> Step | list[_Place]:
    if identity in place.above:
        return Trouble(place.path, "is a symbolic link to a folder that it is in")
    reason = None if place.named else wanted.why_not(place.relative, folder=True)
    if reason is None and not place.named and place.path.name in _CACHES:
        reason = "cache"
    if reason is None and identity in seen:
        reason = "the same folder again"
    if reason:
        return Passed(place.path, reason)
    seen.add(identity)
    return [
        _Place(place.path / name, name if place.named else f"{place.relative}/{name}", above=(*place.above, identity))
        for name in sorted(os.listdir(place.path))  # noqa: PTH208 - names are what is sorted
    ]


def _no_transcript(path: Path) -> str | None:
    """Why a file that was come across is none; by its name, else by its first bytes. Raises `OSError`."""
    name = path.name.lower()
    if name.endswith(_BESIDE_DATABASES):
        return "belongs to a database"
    if name.startswith("."):
        return "hidden"
    if name.endswith(_TRANSCRIPTS):
        return None
    if path.suffix.lower() in _OTHERS:
        return "no transcript"
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    return None if head.lstrip(b"\x00 \t\r\n\xef\xbb\xbf").startswith(_OPENINGS) else "no transcript"


def _kind(mode: int) -> str:
    kinds = {stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket", stat.S_IFBLK: "a device", stat.S_IFCHR: "a device"}
    return kinds.get(stat.S_IFMT(mode), "of an unknown kind")


def _explained(path: Path, error: OSError) -> str:
    if error.errno == errno.ELOOP:
        return "is a symbolic link in a circle"
    if error.errno == errno.ENOENT and path.is_symlink():
        return "is a symbolic link to nothing"
    return (error.strerror or type(error).__name__).lower()
