"""Embedding models that sentence-transformers can load: a hub name or a folder. Reads model files; runs torch.

Nothing is fetched unless `allow_downloads` is set, and nothing is printed while a model loads.
"""

from __future__ import annotations

import copy
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from producers.errors import ModelError
from producers.settings import Settings
from workers.embedding.languages import Tokenise
from workers.embedding.port import Vectors
from workers.embedding.text import readable
from workers.embedding.threads import share_cores_politely, threads_for

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from tokenizers import Tokenizer

Precision = Literal["float32", "bfloat16"]

BFLOAT16_INSTRUCTIONS = ("avx512_bf16", "amx_bf16")
"""With one of these a CPU multiplies bfloat16 about three times as fast as float32; without, more slowly."""
FALLBACK_TOKENS = 512
"""Read at once by a model that states no limit."""
MAX_STATED_TOKENS = 1_000_000
"""A tokenizer without a limit states 10^30."""
RESERVED_POSITIONS = 2
"""Positions that RoBERTa and its descendants keep for padding."""
_KNOWN_PROMPTS: tuple[tuple[re.Pattern[str], str, str], ...] = (
    (re.compile(r"(^|[/_-])e5-(small|base|large)(?!.*instruct)"), "query: ", "passage: "),
    (re.compile(r"bge-(small|base|large)-zh"), "为这个句子生成表示以用于检索相关文章：", ""),
    (re.compile(r"bge-(small|base|large)-en"), "Represent this sentence for searching relevant passages: ", ""),
)
"""Model name → prefix of a query and of a passage, from the model cards, for models whose files do not hold them."""
_QUERY_PROMPTS = ("query",)
_PASSAGE_PROMPTS = ("document", "passage", "corpus")


def choose_precision(wanted: str, *, device: str, capabilities: Mapping[str, Any]) -> Precision:
    """What to compute in. "auto" is bfloat16 on a CPU that has instructions for it, float32 everywhere else."""
    if wanted == "auto":
        fast = device == "cpu" and any(capabilities.get(name) for name in BFLOAT16_INSTRUCTIONS)
        return "bfloat16" if fast else "float32"
    return "bfloat16" if wanted == "bfloat16" else "float32"


def load_encoder(path_or_name: str, settings: Settings) -> SentenceTransformer:
    """The model, in evaluation mode and in the precision that the settings and the machine ask for.

    Raises `ModelError` naming the model when it is not on disk and must not be fetched, or cannot be loaded.
    """
    share_cores_politely()
    try:
        import torch
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise ModelError(
            f"model {path_or_name}: {error}. Install what runs it: pip install 'scope-recall-hermes[embedded]'"
        ) from None
    is_folder = Path(path_or_name).is_dir()
    with _quiet():
        try:
            model = SentenceTransformer(path_or_name, local_files_only=not settings.allow_downloads)
        except Exception as error:
            if is_folder or settings.allow_downloads:
                raise ModelError(f"model {path_or_name}: cannot be loaded: {_first_line(error)}") from error
            raise ModelError(
                f"model {path_or_name}: not on this disk; set SCOPE_RECALL_ALLOW_DOWNLOADS=true to fetch it"
            ) from error
    precision = choose_precision(
        settings.precision, device=model.device.type, capabilities=torch.cpu.get_capabilities()
    )
    model.to(getattr(torch, precision))
    model.eval()
    return model


class SentenceTransformerEmbedder:
    """One loaded model. Calls from several threads wait for each other: the tokenizer is not re-entrant."""

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        name: str,
        batch: int,
        scripts: frozenset[str] | None,
    ) -> None:
        self.name = name
        self._model = model
        self._batch = batch
        self._lock = threading.Lock()
        self._count = _token_counter(model)
        self.query_prompt, self.passage_prompt = _prompts(model, name)
        limit = _input_limit(model)
        special = _special_tokens(model)
        self.max_tokens = limit - special - self._count(self.passage_prompt)
        if self.max_tokens < 1:
            raise ModelError(f"model {name}: its limit of {limit} tokens leaves no room for a text")
        self.scripts = scripts
        self.dimension = self.embed_query("dimension").shape[1]

    def token_counter(self) -> Callable[[str], int]:
        return self._count

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """One row a text, in order."""
        if not texts:
            return np.empty((0, self.dimension), np.float32)
        return self._encode(self._model.encode_document, texts, self.passage_prompt)

    def embed_query(self, text: str) -> Vectors:
        """Shape (1, dimension). A question over the model's limit is read up to there."""
        with threads_for(text):
            return self._encode(self._model.encode_query, [text], self.query_prompt)

    def _encode(self, encode: Callable[..., Any], texts: Sequence[str], prompt: str) -> Vectors:
        import torch

        with self._lock, torch.inference_mode():
            tensor = encode(
                [readable(text) for text in texts],
                prompt=prompt,
                batch_size=self._batch,
                show_progress_bar=False,
                convert_to_tensor=True,
            )
            # Normalised after widening: in bfloat16 a norm would be off by up to 1%.
            wide = torch.nn.functional.normalize(tensor.float(), dim=1)
            vectors: Vectors = wide.cpu().numpy()
        return vectors


@contextmanager
def _quiet() -> Iterator[None]:
    """No progress bars and no reports on what was loaded; the process's own choices come back afterwards."""
    from transformers.utils import logging

    bars, verbosity = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def _prompts(model: SentenceTransformer, name: str) -> tuple[str, str]:
    """Prefixes of a query and of a passage: the model's own, or those its card asks for."""
    own = [
        next((model.prompts[key] for key in keys if model.prompts.get(key)), "")
        for keys in (_QUERY_PROMPTS, _PASSAGE_PROMPTS)
    ]
    if not any(own):
        for pattern, query, passage in _KNOWN_PROMPTS:
            if pattern.search(name.lower()):
                return query, passage
    return own[0], own[1]


def _input_limit(model: SentenceTransformer) -> int:
    """Tokens the model reads at once, special ones included: what it states, or has positions for if that is less."""
    stated = model.get_max_seq_length()
    states_none = stated is None or stated > MAX_STATED_TOKENS
    positions = getattr(getattr(model[0], "config", None), "max_position_embeddings", None)
    if not positions:
        return FALLBACK_TOKENS if states_none else int(stated)
    limit = int(positions) - RESERVED_POSITIONS if states_none else min(int(stated), int(positions))
    if limit != stated:
        model.max_seq_length = limit  # or a longer text would run past the model's positions
    return limit


def _backend(model: SentenceTransformer) -> Tokenizer | None:
    """The Rust tokenizer, when there is one."""
    tokenizer: Any = model.tokenizer
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    return backend if hasattr(backend, "no_truncation") else None


def _token_counter(model: SentenceTransformer) -> Callable[[str], int]:
    backend = _backend(model)
    if backend is None:
        tokenizer: Any = model.tokenizer
        return lambda text: len(tokenizer.tokenize(readable(text)))
    # A copy: the model's own truncates and pads, and must not be used by two threads at once.
    own = copy.deepcopy(backend)
    own.no_truncation()
    own.no_padding()
    return lambda text: len(own.encode(readable(text), add_special_tokens=False))


def _special_tokens(model: SentenceTransformer) -> int:
    tokenizer: Any = model.tokenizer
    count = getattr(tokenizer, "num_special_tokens_to_add", None)
    return int(count(False)) if count is not None else 0


def tokeniser(model: SentenceTransformer) -> Tokenise | None:
    """The model's own tokenizer as a function, for `spoken_scripts`; None when it cannot say what it does not know."""
    backend = _backend(model)
    if backend is None:
        return None
    own = copy.deepcopy(backend)
    own.no_truncation()
    own.no_padding()
    unknown = getattr(model.tokenizer, "unk_token", None)

    def tokens(text: str) -> list[str | None]:
        found = own.encode(text, add_special_tokens=False).tokens
        return [None if token == unknown else token for token in found]

    return tokens


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
