"""Rerankers behind an HTTP endpoint, in the dialects of Jina, Cohere, vLLM and Infinity, and of TEI. Does network I/O.

Request:  POST {url} {"model"?, "query", "documents"} (Jina, Cohere, vLLM, Infinity) or {"query", "texts"} (TEI)
Response: {"results": [{"index", "relevance_score"}]} or [{"index", "score"}]
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from producers.errors import ModelError, RetryableError, SettingsError
from producers.settings import Settings
from query.reranking.port import Passage, Reranked
from workers.embedding.text import readable

if TYPE_CHECKING:
    import httpx

BATCH = 32
"""Texts a request: TEI's default for --max-client-batch-size; the others take more."""
TIMEOUT = 30.0
"""Seconds a request may take when the caller sets no deadline."""
TEXT_FIELDS = ("documents", "texts")
"""Names of the field that holds the candidates, in the order they are tried; TEI knows only the second."""
WRONG_FIELD = frozenset({400, 422})
"""Statuses with which a server answers a request whose fields it does not know."""
REFUSED = frozenset({400, 401, 403, 404, 405, 413, 422})
"""Statuses that the same request will get again: the URL, the key, the model or the size is wrong."""


class HttpReranker:
    """Scores are the service's own; higher is better."""

    scripts: frozenset[str] | None = None  # the service does not say; its operator chose it for these texts

    def __init__(self, settings: Settings, model: str | None = None) -> None:
        """Take the URL and key from `settings`; `model` is sent along when given. Connects at the first use."""
        if settings.reranker_url is None:
            raise SettingsError("reranker 'http' needs the URL of its endpoint: set SCOPE_RECALL_RERANKER_URL")
        try:
            import httpx
        except ImportError as error:
            raise ModelError("reranker 'http' needs httpx: pip install 'scope-recall-hermes[query]'") from error
        self.name = f"http:{model}" if model else "http"
        self._url = settings.reranker_url
        self._model = model
        self._text_field: str | None = None  # learnt from the first answer
        key = settings.reranker_api_key
        self._client = httpx.Client(headers={"Authorization": f"Bearer {key}"} if key else {}, timeout=TIMEOUT)

    def rerank(self, query: str, passages: Sequence[Passage], *, deadline: float | None = None) -> Reranked:
        """Scores by requests of `BATCH` texts, best first, each given what is left until `deadline`.

        Raises `RetryableError` when the service does not answer or is overloaded, `ModelError` when it refuses the
        request or answers with something that is not a ranking.
        """
        texts = [passage.text for passage in passages]
        scores: list[float | None] = [None] * len(texts)
        for start in range(0, len(texts), BATCH):
            batch = texts[start : start + BATCH]
            left = TIMEOUT if deadline is None else deadline - time.monotonic()
            answered = self._score(query, batch, left, bounded=deadline is not None) if left > 0 else None
            if answered is None:
                break
            scores[start : start + len(batch)] = answered
        return Reranked(scores)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _score(self, query: str, texts: Sequence[str], seconds: float, *, bounded: bool) -> list[float] | None:
        """Scores of one batch, or None when the deadline (`bounded`) came first."""
        import httpx

        try:
            response = self._post(query, texts, seconds)
        except httpx.TimeoutException as error:
            if bounded:
                return None
            raise RetryableError(f"reranker {self._url} did not answer within {seconds:g} s") from error
        except httpx.InvalidURL as error:
            raise ModelError(f"reranker URL {self._url!r} is not valid: {error}") from error
        except httpx.HTTPError as error:
            raise RetryableError(f"reranker {self._url} cannot be reached: {error}") from error
        if response.status_code in REFUSED:
            raise ModelError(f"reranker {self._url} refused the request: {_say(response)}")
        if not response.is_success:
            raise RetryableError(f"reranker {self._url} failed: {_say(response)}")
        try:
            return _scores_of(response.json(), len(texts))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ModelError(f"reranker {self._url} answered with something other than a ranking: {error}") from error

    def _post(self, query: str, texts: Sequence[str], seconds: float) -> httpx.Response:
        """POST in the known dialect; while none is known, in each until one is understood."""
        end = time.monotonic() + seconds
        fields = (self._text_field,) if self._text_field else TEXT_FIELDS
        for field in fields:
            body: dict[str, Any] = {"query": readable(query), field: list(map(readable, texts))}
            if self._model:
                body["model"] = self._model
            response = self._client.post(self._url, json=body, timeout=max(end - time.monotonic(), 1e-3))
            if response.status_code not in WRONG_FIELD:
                self._text_field = field if response.is_success else self._text_field
                break
        return response


def _say(response: httpx.Response, limit: int = 200) -> str:
    return f"HTTP {response.status_code} {response.text[:limit]}".strip()


def _scores_of(answer: Any, count: int) -> list[float]:
    """Scores in the order of the texts. Raises ValueError, TypeError or KeyError when the answer is not a ranking."""
    items = answer["results"] if isinstance(answer, dict) else answer
    scores: dict[int, float] = {}
    for item in items:
        score = float(item["relevance_score"] if "relevance_score" in item else item["score"])
        if not math.isfinite(score):
            raise ValueError(f"score {score} for text {item['index']}")
        scores[int(item["index"])] = score
    if sorted(scores) != list(range(count)):
        raise ValueError(f"scores for {len(scores)} of {count} texts")
    return [scores[index] for index in range(count)]
