"""Token vectors of a sentence-transformers model. Reads model files; runs torch."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from producers.errors import ModelError
from producers.settings import Settings
from query.reranking.token_encoder import Prepared
from query.reranking.tokens import tokenizer_scripts
from workers.embedding.passes import alike
from workers.embedding.text import readable

MAX_TOKENS = 8192
"""Read of one text by a model that states no limit, or an absurd one (1e30)."""


class SentenceTokens:
    """A model's own token vectors; it gets no prefix, and a query is read like any text."""

    def __init__(self, model: str, settings: Settings, scripts: frozenset[str] | None = None) -> None:
        """Load a hub name or folder; `scripts` None: read them off its vocabulary.

        Raises `ModelError` naming the model when it is absent or has no token vectors.
        """
        from workers.embedding.sentence_transformer import load_encoder

        encoder: Any = load_encoder(model, settings)
        if not callable(getattr(encoder, "tokenizer", None)) or not hasattr(encoder[0], "max_seq_length"):
            raise ModelError(f"{model!r} has no transformer with token vectors, which late interaction compares")
        self.scripts = scripts or tokenizer_scripts(model, encoder.tokenizer)
        self._model = model
        self._transformer = encoder[0]
        self._tokenizer = encoder.tokenizer
        self._device = encoder.device
        self._max_tokens = min(encoder.max_seq_length or MAX_TOKENS, MAX_TOKENS)
        self._lock = threading.Lock()  # truncation is state of the Rust tokenizer: "Already borrowed"

    def prepare(self, texts: Sequence[str], *, query: bool) -> list[Prepared]:
        with self._lock:
            inputs = self._tokenizer(
                list(map(readable, texts)),
                truncation=True,
                max_length=self._max_tokens,
                return_special_tokens_mask=True,
                verbose=False,
            )
        special = inputs["special_tokens_mask"]
        return [
            Prepared(np.asarray(ids, np.int32), np.asarray(mask) == 0)
            for ids, mask in zip(inputs["input_ids"], special, strict=True)
        ]

    def forward(self, rows: Sequence[NDArray[np.int32]]) -> list[NDArray[np.float16]]:
        found: dict[int, NDArray[np.float16]] = {}
        for padded, places in alike([len(row) for row in rows]).items():
            length = min(padded, self._max_tokens)
            found |= zip(places, self._read([rows[place] for place in places], length), strict=True)
        return [found[place] for place in range(len(rows))]

    def _read(self, rows: Sequence[NDArray[np.int32]], padded: int) -> list[NDArray[np.float16]]:
        import torch

        try:
            ids = {"input_ids": [row.tolist() for row in rows]}
            features = dict(
                self._tokenizer.pad(ids, padding="max_length", max_length=padded, return_tensors="pt").to(self._device)
            )
            real = features["attention_mask"].bool()
            with torch.inference_mode():
                hidden = self._transformer(features)["token_embeddings"].float()
                unit = torch.nn.functional.normalize(hidden, dim=-1).to(torch.float16).cpu()
        except (RuntimeError, IndexError, ValueError) as error:
            raise ModelError(f"late interaction over {self._model}: a batch failed: {error}") from error
        return [vectors[mask].numpy() for vectors, mask in zip(unit, real.cpu(), strict=True)]

    def is_word(self, token: int) -> bool:
        with self._lock:
            return any(map(str.isalnum, self._tokenizer.decode([token])))
