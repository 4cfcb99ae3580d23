"""Embeddings from an OpenAI-compatible HTTP service (OpenAI, vLLM, TEI, Ollama). Does network I/O.

It never retries: it says what went wrong in terms of this project's errors, and whoever called decides. What a
service refuses as too much is sent again in halves; what it answers is checked before it is believed.
"""

from __future__ import annotations

import email.utils
import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from producers.errors import EmbedderUnavailable, ModelError, PoisonError, SettingsError
from producers.settings import Settings
from workers.embedding.port import Vectors
from workers.embedding.text import readable

DEFAULT_MAX_TOKENS = 500
"""Fits any model that reads 512 tokens or more, special tokens included."""
FIRST_BATCH = 64
"""Texts in the first request; halved when the service refuses, and kept there."""
CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 60.0
TOO_MUCH = frozenset({400, 413, 422})
"""Answers to a batch that is too large, or to a text that cannot be embedded; halving tells which."""
BUSY = frozenset({408, 425, 429})
MIN_NORM = 1e-6
REASON_CHARS = 200


class _Refused(Exception):
    """The service refused the request itself; it may accept a smaller one."""


class OpenAIEmbedder:
    """One model of one service. Safe to share between threads.

    Tokens are counted as bytes of UTF-8, the one bound that holds for every tokenizer of such a service, so no text is
    ever cut by it. English has about four bytes a token: for larger chunks raise `chunk_tokens`.
    """

    scripts: frozenset[str] | None = None

    def __init__(self, model: str, settings: Settings) -> None:
        import httpx

        if not settings.embedder_url:
            raise SettingsError(
                f"embedder openai:{model} needs the URL of its service: set SCOPE_RECALL_EMBEDDER_URL, "
                "for example http://127.0.0.1:8080/v1"
            )
        self.name = f"openai:{model}"
        self.max_tokens = settings.chunk_tokens or DEFAULT_MAX_TOKENS
        self.dimension = 0
        self._model = model
        self._batch = FIRST_BATCH
        self._url = settings.embedder_url.rstrip("/") + "/embeddings"
        headers = {"Authorization": f"Bearer {settings.embedder_api_key}"} if settings.embedder_api_key else {}
        timeout = httpx.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS)
        try:
            self._client = httpx.Client(headers=headers, timeout=timeout)
            self.dimension = self.embed_query("dimension").shape[1]
        except PoisonError as error:  # not the text's fault: no text was given yet
            self.close()
            raise ModelError(f"embedder {self.name}: {error}") from error
        except (EmbedderUnavailable, ModelError):
            self.close()
            raise

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def token_counter(self) -> Callable[[str], int]:
        return lambda text: len(readable(text).encode())

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """One row a text, in order. Raises `PoisonError` for a text that the service refuses on its own."""
        rows: list[Vectors] = []
        at = 0
        while at < len(texts):
            part = texts[at : at + self._batch]
            rows.append(self._embed([readable(text) for text in part]))
            at += len(part)
        return np.concatenate(rows) if rows else np.empty((0, self.dimension), np.float32)

    def embed_query(self, text: str) -> Vectors:
        """Shape (1, dimension)."""
        return self._embed([readable(text)])

    def _embed(self, texts: list[str]) -> Vectors:
        try:
            return self._parse(self._post(texts), len(texts))
        except _Refused as error:
            if len(texts) == 1:
                raise PoisonError(f"{self._where} refuses a text of {len(texts[0]):,} characters: {error}") from None
        half = (len(texts) + 1) // 2
        vectors = np.concatenate([self._embed(texts[:half]), self._embed(texts[half:])])
        self._batch = min(self._batch, half)  # both halves went through: the size was what it minded
        return vectors

    @property
    def _where(self) -> str:
        return f"embedding service {self._url}, model {self._model}:"

    def _post(self, texts: list[str]) -> Any:
        """The answer's JSON. Raises what the status code means."""
        import httpx

        try:
            answer = self._client.post(
                self._url, json={"model": self._model, "input": texts, "encoding_format": "float"}
            )
        except httpx.TransportError as error:  # time-outs are among them
            raise EmbedderUnavailable(f"{self._where} {type(error).__name__}: {error}") from error
        except httpx.InvalidURL as error:
            raise ModelError(f"{self._where} not a usable URL: {error}") from error
        code = answer.status_code
        reason = f"HTTP {code}: {answer.text[:REASON_CHARS].strip()}"
        if code in BUSY or code >= 500:
            wait = _retry_after(answer.headers.get("retry-after"))
            raise EmbedderUnavailable(f"{self._where} {reason}", retry_after=wait)
        if code in TOO_MUCH:
            raise _Refused(reason)
        if code != 200:
            raise ModelError(f"{self._where} {reason}; check the URL, the key and the model's name")
        try:
            return answer.json()
        except ValueError as error:
            raise EmbedderUnavailable(
                f"{self._where} the answer is not JSON: {answer.text[:REASON_CHARS]!r}"
            ) from error

    def _parse(self, answer: Any, count: int) -> Vectors:
        """Shape (count, dimension), normalised. Raises rather than return a vector that was not computed."""
        items = answer.get("data") if isinstance(answer, dict) else None
        if not isinstance(items, list) or len(items) != count:
            given = len(items) if isinstance(items, list) else "no"
            raise EmbedderUnavailable(f"{self._where} {given} vectors for {count} texts")
        try:
            by_index = {item.get("index", at): item["embedding"] for at, item in enumerate(items)}
            vectors = np.array([by_index[at] for at in range(count)], dtype=np.float64)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise EmbedderUnavailable(f"{self._where} vectors are missing, uneven or not numbers: {error}") from error
        if vectors.ndim != 2 or (self.dimension and vectors.shape[1] != self.dimension):
            raise ModelError(
                f"{self._where} vectors of shape {vectors.shape[1:]} where dimension {self.dimension} was due; "
                "another model answers under this name"
            )
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        if not (np.isfinite(norms) & (norms > MIN_NORM)).all():
            if count > 1:
                raise _Refused("zero or non-finite vectors")
            raise EmbedderUnavailable(f"{self._where} a vector is zero or not finite")
        unit: Vectors = (vectors / norms).astype(np.float32)
        return unit


def _retry_after(header: str | None) -> float | None:
    """Seconds, from either form of the header (RFC 9110, 10.2.3)."""
    if header is None:
        return None
    try:
        seconds = float(header)
    except ValueError:
        try:
            moment = email.utils.parsedate_to_datetime(header)
        except ValueError:
            return None
        aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        seconds = (aware - datetime.now(UTC)).total_seconds()
    return max(0.0, seconds) if math.isfinite(seconds) else None
