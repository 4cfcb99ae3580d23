"""Late interaction over a sentence-transformers model's own token vectors. Loads a model; otherwise pure computation.

score(q, d) = sum_i w_i max_j cos(q_i, d_j) / sum_i w_i over the query's tokens i and the text's tokens j: the MaxSim of
ColBERT (Khattab & Zaharia 2020, arXiv:2004.12832) as a mean, with a weight for each query token. The weight is the
BM25 idf, log(1 + (N - n + .5) / (n + .5)), of the token among the N candidates of this call, n of which hold it; so a
word that every candidate holds decides nothing. Special tokens are left out and punctuation weighs nothing.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from producers.errors import ModelError
from producers.settings import Settings
from query.reranking.pacing import Pace, best_reached, run_in_time
from query.reranking.port import Reranked
from query.reranking.tokens import tokenizer_scripts
from workers.embedding.text import readable

CACHE_BYTES = 64 << 20
"""Token vectors kept: 350 texts of 240 tokens in 384 dimensions, seven pools of 50."""
BATCH = 16
"""Texts a pass: from 4 to 32 long texts a token costs the same, within 10%."""
NO_TOKENS = 0.0
"""Score of a text, or for a query, without a single token: similar to nothing."""

MAX_TOKENS = 8192
"""Read of one text by a model that states no limit, or an absurd one (1e30)."""
WARM_UP = "what a pass costs is known before the first deadline"


@dataclass(frozen=True)
class Tokens:
    """One text's tokens, special tokens left out."""

    ids: NDArray[np.int32]
    """Shape (tokens,)."""
    vectors: NDArray[np.float16] | None
    """Shape (tokens, dimension), rows of L2 norm 1; None when they were not made in time. float16 halves the cache and
    moves a score by less than .001."""

    @property
    def nbytes(self) -> int:
        return self.ids.nbytes + (0 if self.vectors is None else self.vectors.nbytes)


class VectorCache:
    """Least recently used token vectors by digest of their text, bounded in bytes. Thread-safe."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = 0
        self._entries: OrderedDict[bytes, Tokens] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def nbytes(self) -> int:
        """Bytes held, never above the limit."""
        return self._size

    def get(self, key: bytes) -> Tokens | None:
        with self._lock:
            if key in self._entries:
                self._entries.move_to_end(key)
            return self._entries.get(key)

    def put(self, key: bytes, entry: Tokens) -> None:
        with self._lock:
            if key in self._entries or entry.nbytes > self._limit:
                return
            self._entries[key] = entry
            self._size += entry.nbytes
            while self._size > self._limit:
                self._size -= self._entries.popitem(last=False)[1].nbytes


class LateInteraction:
    """Scores are weighted mean cosines in [-1, 1]; higher is better."""

    def __init__(
        self, encoder: Any, *, name: str, scripts: frozenset[str] | None, cache_bytes: int = CACHE_BYTES
    ) -> None:
        """Take a loaded `sentence_transformers.SentenceTransformer` and warm it up."""
        self.name = name
        self.scripts = scripts
        self._transformer = encoder[0]
        self._tokenizer = encoder.tokenizer
        self._device = encoder.device
        self._max_tokens = min(encoder.max_seq_length or MAX_TOKENS, MAX_TOKENS)
        self._cache = VectorCache(cache_bytes)
        self._pace = Pace()
        self._lock = threading.Lock()
        self._tokenizer_lock = threading.Lock()  # truncation is state of the Rust tokenizer: "Already borrowed"
        for number in range(2):  # the first pass pays for lazy initialisation, the second corrects the pace
            self._look_up([f"{WARM_UP} {number}"], None)

    @classmethod
    def load(cls, model: str, settings: Settings, *, name: str, scripts: frozenset[str] | None) -> LateInteraction:
        """Load a hub name or folder; `scripts` None: read them off its vocabulary.

        Raises `ModelError` naming the model when it is absent or has no token vectors.
        """
        from workers.embedding.sentence_transformer import load_encoder

        encoder = load_encoder(model, settings)
        if not callable(getattr(encoder, "tokenizer", None)) or not hasattr(encoder[0], "max_seq_length"):
            raise ModelError(f"{model!r} has no transformer with token vectors, which late interaction compares")
        return cls(encoder, name=name, scripts=scripts or tokenizer_scripts(model, encoder.tokenizer))

    def rerank(self, query: str, texts: Sequence[str], *, deadline: float | None = None) -> Reranked:
        """Score `texts`; those whose vectors are cached cost next to nothing. Raises `ModelError` when a pass fails."""
        if not texts or (deadline is not None and time.monotonic() >= deadline):
            return Reranked([None] * len(texts))
        asked = self._look_up([query], deadline)[0]
        pool = self._look_up(texts, deadline)
        if asked.vectors is None:
            return Reranked([None] * len(texts))
        weights = self._weights(asked.ids, [tokens.ids for tokens in pool])
        heavy = weights > 0
        wanted = asked.vectors[heavy].astype(np.float32)
        return Reranked(best_reached([_score(wanted, weights[heavy], tokens.vectors) for tokens in pool]))

    def _weights(self, query: NDArray[np.int32], pool: Sequence[NDArray[np.int32]]) -> NDArray[np.float32]:
        """Weight of each query token, summing to 1; equal ones when the query is all punctuation."""
        with self._tokenizer_lock:
            silent = [not any(map(str.isalnum, self._tokenizer.decode([token]))) for token in query.tolist()]
        weights = np.where(silent, 0.0, idf(query, pool))
        if not weights.any():
            weights = np.ones(len(query))
        return np.asarray(weights / max(weights.sum(), 1.0e-9), dtype=np.float32)

    def _look_up(self, texts: Sequence[str], deadline: float | None) -> list[Tokens]:
        """Tokens of each text in order, with vectors where they were cached or could be made in time."""
        keys = [hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest() for text in texts]
        found = {key: entry for key in keys if (entry := self._cache.get(key)) is not None}
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in found}
        if missing:
            found |= self._encode(list(missing), list(missing.values()), deadline)
        return [found[key] for key in keys]

    def _encode(self, keys: list[bytes], texts: list[str], deadline: float | None) -> dict[bytes, Tokens]:
        with self._tokenizer_lock:
            inputs = self._tokenizer(
                list(map(readable, texts)),
                truncation=True,
                max_length=self._max_tokens,
                return_special_tokens_mask=True,
                verbose=False,
            )
        own = [np.asarray(mask) == 0 for mask in inputs.pop("special_tokens_mask")]
        ids = [np.asarray(row, dtype=np.int32) for row in inputs["input_ids"]]
        made = {key: Tokens(row[mask], None) for key, row, mask in zip(keys, ids, own, strict=True)}

        def run(indices: list[int]) -> None:
            batch = {name: [rows[index] for index in indices] for name, rows in inputs.items()}
            for index, vectors in zip(indices, self._forward(batch), strict=True):
                tokens = Tokens(ids[index][own[index]], vectors[own[index]])
                made[keys[index]] = tokens
                self._cache.put(keys[index], tokens)

        lengths = [len(row) for row in ids]
        run_in_time(lengths, run, batch=BATCH, pace=self._pace, lock=self._lock, deadline=deadline)
        return made

    def _forward(self, batch: dict[str, list[list[int]]]) -> list[NDArray[np.float16]]:
        """One array (tokens, dimension) for each row, special tokens included, padding not."""
        import torch

        try:
            features = self._tokenizer.pad(batch, return_tensors="pt").to(self._device)
            real = features["attention_mask"].bool()
            with torch.inference_mode():
                hidden = self._transformer(dict(features))["token_embeddings"].float()
                unit = torch.nn.functional.normalize(hidden, dim=-1).to(torch.float16).cpu()
        except (RuntimeError, IndexError, ValueError) as error:
            raise ModelError(f"reranker {self.name} failed on a batch: {error}") from error
        return [rows[mask].numpy() for rows, mask in zip(unit, real.cpu(), strict=True)]


def idf(query: NDArray[np.int32], pool: Sequence[NDArray[np.int32]]) -> NDArray[np.float64]:
    """log(1 + (N - n + .5) / (n + .5)) for each query token, n of the N candidates in `pool` holding it."""
    holding = Counter(token for ids in pool for token in set(ids.tolist()))
    held = np.array([holding[token] for token in query.tolist()], dtype=np.float64)
    return np.log1p((len(pool) - held + 0.5) / (held + 0.5))


def _score(query: NDArray[np.float32], weights: NDArray[np.float32], text: NDArray[np.float16] | None) -> float | None:
    """Weighted mean of each query token's best cosine; None when the text was not reached."""
    if text is None:
        return None
    if not len(text) or not len(query):
        return NO_TOKENS
    best = (text.astype(np.float32) @ query.T).max(axis=0)
    return float(best @ weights)
