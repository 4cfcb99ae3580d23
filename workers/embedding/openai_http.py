"""Embeddings from an OpenAI-compatible HTTP service (OpenAI, vLLM, TEI, Ollama). Does network I/O.

It never retries: it says what went wrong in terms of this project's errors, and whoever called decides. What a
service refuses or fails on is sent again in halves, down to a text that it refuses alone, which is blamed only when
the service still embeds another. What it answers is checked before it is believed, and never quoted: services repeat
in a message what they were sent.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from producers.errors import EmbedderUnavailable, ModelError, PoisonError, ScopeRecallError, SettingsError
from producers.retry_after import seconds_of
from producers.settings import Settings, without_password
from workers.embedding.batch import MIN_NORM, PROBE
from workers.embedding.port import PartlyEmbedded, Vectors
from workers.embedding.text import readable

DEFAULT_MAX_TOKENS = 500
"""Fits any model that reads 512 tokens or more, special tokens included."""
FIRST_BATCH = 64
"""Texts in the first request; halved when the service refuses, and kept there."""
CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 60.0
"""For a whole answer, and for a silence in it."""
TOO_MUCH = frozenset({400, 413, 422})
"""Answers to a batch that is too large, or to a text that cannot be embedded; halving tells which."""
FAILED = frozenset({424, 500})
"""The service failed on what it was sent, for now or for good: llama.cpp answers 500 to a text that is too long, TEI
424 when its model fails. Halving tells a text from an outage."""
BUSY = frozenset({408, 425, 429})
REASON_CHARS = 200
_CODE_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
"""What an error is called by OpenAI (type, code), TEI (error_type) and vLLM (type): one word."""


class _Failed(Exception):
    """This request failed; a smaller one may not."""

    def __init__(
        self,
        error: PoisonError | EmbedderUnavailable,
        *,
        too_much: bool = False,
        if_all: ModelError | EmbedderUnavailable | None = None,
    ) -> None:
        super().__init__()
        self.error = error
        """What it means when one text alone fails so, and others do not."""
        self.too_much = too_much
        self.if_all = if_all or EmbedderUnavailable(f"{error}; it fails on every text: see its log")
        """What it means when another text fails as well."""


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
        self._batch = self._most = FIRST_BATCH
        self._url = settings.embedder_url.rstrip("/") + "/embeddings"
        headers = {"Authorization": f"Bearer {settings.embedder_api_key}"} if settings.embedder_api_key else {}
        timeout = httpx.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS)
        try:
            self._client = httpx.Client(headers=headers, timeout=timeout)
            self.dimension = self._request([PROBE], quote=True).shape[1]
        except _Failed as failed:
            self.close()
            if isinstance(failed.error, EmbedderUnavailable):
                raise failed.error from None
            raise ModelError(f"embedder {self.name}: {failed.error}") from None  # no turn was sent yet
        except (EmbedderUnavailable, ModelError):
            self.close()
            raise

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def token_counter(self) -> Callable[[str], int]:
        return lambda text: len(readable(text).encode())

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """One row a text, in order. Raises `PartlyEmbedded` when the service refuses some texts, or stops half-way."""
        vectors = np.full((len(texts), self.dimension), np.nan, np.float32)
        errors: dict[int, ScopeRecallError] = {}
        at = 0
        while at < len(texts):
            part = [readable(text) for text in texts[at : at + self._batch]]
            try:
                vectors[at : at + len(part)], failed = self._embed(part)
            except (EmbedderUnavailable, ModelError) as error:
                if at == 0:
                    raise
                raise PartlyEmbedded(vectors, errors, error) from None
            errors |= {at + position: error for position, error in failed.items()}
            at += len(part)
            self._batch = min(self._most, self._batch + 1)  # recovers from a time that was too slow for more
        if errors:
            raise PartlyEmbedded(vectors, errors)
        return vectors

    def embed_query(self, text: str) -> Vectors:
        """Shape (1, dimension)."""
        vectors, errors = self._embed([readable(text)])
        if errors:
            raise errors[0]
        return vectors

    def _embed(self, texts: list[str]) -> tuple[Vectors, dict[int, ScopeRecallError]]:
        """The vectors, NaN for a text that fails alone while others do not, and why by position."""
        try:
            return self._request(texts), {}
        except _Failed as failed:
            too_much = failed.too_much
            if len(texts) > 1 and isinstance(failed.if_all, ModelError):
                self._check_another(failed.if_all)  # another model is told at once, not text by text
        if len(texts) == 1:
            return self._embed_again(texts)
        half = (len(texts) + 1) // 2
        first, errors = self._embed(texts[:half])
        second, more = self._embed(texts[half:])
        if too_much and not errors and not more:  # both halves went through: the size was what it minded
            self._most = min(self._most, half)
            self._batch = min(self._batch, half)
        return np.concatenate([first, second]), errors | {half + at: error for at, error in more.items()}

    def _embed_again(self, texts: list[str]) -> tuple[Vectors, dict[int, ScopeRecallError]]:
        """The text that failed alone, blamed for it when it fails before and after another one does not."""
        self._check_another()
        try:
            return self._request(texts), {}  # what failed may have come back since
        except _Failed as failed:
            return np.full((1, self.dimension), np.nan, np.float32), {0: failed.error}

    def _check_another(self, if_not: ModelError | None = None) -> None:
        """Raise unless another text is embedded: then no text is to blame, and `if_not` says what is."""
        try:
            self._request([PROBE], quote=True)
        except _Failed as failed:
            raise if_not or failed.if_all from None

    @property
    def _where(self) -> str:
        return f"embedding service {without_password(self._url)}, model {self._model}:"

    def _request(self, texts: list[str], *, quote: bool = False) -> Vectors:
        """One request, as vectors. `quote`: the texts are ours, so that the service's own words may be shown.

        Raises `_Failed` when fewer texts may fare better, `EmbedderUnavailable` and `ModelError` when not.
        """
        import httpx

        body = {"model": self._model, "input": texts, "encoding_format": "float"}
        try:
            answer = self._post(body)
        except httpx.InvalidURL as error:
            raise ModelError(f"{self._where} not a usable URL: {error}") from None
        except httpx.RequestError as error:
            if isinstance(error, httpx.ReadTimeout | httpx.WriteTimeout):
                self._batch = max(1, len(texts) // 2)  # it may be too slow for so many at once
            # What connecting says is the system's; later, the service's own bytes may be in it.
            said = f": {error}" if isinstance(error, httpx.ConnectError) else ""
            raise EmbedderUnavailable(f"{self._where} {type(error).__name__}{said}") from None
        if answer.status_code != 200:
            said = f": {answer.text[:REASON_CHARS].strip()}" if quote else _code_words(answer, texts)
            self._refuse(answer, f"HTTP {answer.status_code}{said}", texts)
        try:
            parsed = answer.json()
        except (ValueError, RecursionError):
            raise _Failed(EmbedderUnavailable(f"{self._where} the answer is not JSON")) from None
        return self._parse(parsed, texts)

    def _post(self, body: dict[str, Any]) -> Any:
        """The service's answer. Raises httpx' time-out when it is not complete after ANSWER_SECONDS.

        httpx itself bounds only the time between two pieces, so that one that trickles would be read for ever.
        """
        import httpx

        deadline = time.monotonic() + ANSWER_SECONDS
        raw = b""
        with self._client.stream("POST", self._url, json=body) as answer:
            for piece in answer.iter_raw():
                raw += piece
                if time.monotonic() > deadline:
                    raise httpx.ReadTimeout("", request=answer.request)
        return httpx.Response(answer.status_code, headers=answer.headers, content=raw)

    def _refuse(self, answer: Any, reason: str, texts: list[str]) -> NoReturn:
        """Raise what a status other than 200 means."""
        code = answer.status_code
        wait = seconds_of(answer.headers.get("retry-after"))
        if code in FAILED and wait is None:
            raise _Failed(EmbedderUnavailable(f"{self._where} fails on {_sized(texts)}: {reason}"))
        if code in BUSY or code >= 500:
            raise EmbedderUnavailable(f"{self._where} {reason}", retry_after=wait)
        if code in TOO_MUCH:
            raise _Failed(PoisonError(f"{self._where} refuses {_sized(texts)}: {reason}"), too_much=True)
        raise ModelError(f"{self._where} {reason}; check the URL, the key and the model's name")

    def _parse(self, answer: Any, texts: list[str]) -> Vectors:
        """Shape (count, dimension), normalised. Raises rather than return a vector that was not computed."""
        count = len(texts)
        items = answer.get("data") if isinstance(answer, dict) else None
        if not isinstance(items, list) or len(items) != count:
            given = len(items) if isinstance(items, list) else "no"
            raise _Failed(EmbedderUnavailable(f"{self._where} {given} vectors for {_sized(texts)}"))
        try:
            by_index = {item.get("index", at): item["embedding"] for at, item in enumerate(items)}
            vectors = np.array([by_index[at] for at in range(count)], dtype=np.float64)
            _, dimension = vectors.shape
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
            raise _Failed(
                EmbedderUnavailable(f"{self._where} vectors for {_sized(texts)} are missing, uneven or not numbers")
            ) from None
        if self.dimension and dimension != self.dimension:
            wrong = f"of dimension {dimension} where {self.dimension} was due"
            raise _Failed(
                PoisonError(f"{self._where} a vector {wrong} for {_sized(texts)}, while others get the right ones"),
                if_all=ModelError(f"{self._where} vectors {wrong}; another model answers under this name"),
            )
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        if not (np.isfinite(norms) & (norms > MIN_NORM)).all():
            raise _Failed(PoisonError(f"{self._where} a zero or non-finite vector for {_sized(texts)}"))
        unit: Vectors = (vectors / norms).astype(np.float32)
        return unit


def _sized(texts: Sequence[str]) -> str:
    return f"a text of {len(texts[0]):,} characters" if len(texts) == 1 else f"{len(texts)} texts"


def _code_words(answer: Any, texts: Sequence[str]) -> str:
    """What the service calls the error; nothing else of its body is safe to show, nor a word that it was sent."""
    try:
        body = answer.json()
    except (ValueError, RecursionError):
        return ""
    parts = [body, body.get("error")] if isinstance(body, dict) else []
    named = [part.get(key) for part in parts if isinstance(part, dict) for key in ("type", "code", "error_type")]
    words = dict.fromkeys(word for word in named if isinstance(word, str) and _CODE_WORD.fullmatch(word))
    shown = [word for word in words if not any(word in text for text in texts)]
    return f" ({', '.join(shown)})" if shown else ""
