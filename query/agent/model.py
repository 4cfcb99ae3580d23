"""A language model behind an OpenAI-compatible server (OpenAI, vLLM, llama.cpp, Ollama, LM Studio). Does network I/O.

POST {base}/chat/completions with `stream`; the pieces of the answer as they come.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from typing import TypedDict

import httpx

from producers.calls import checked_url, headers, is_loopback, json_body
from producers.errors import ModelAway, ModelError, ScopeRecallError, SettingsError
from producers.retry_after import seconds_of
from producers.settings import Settings, without_password
from query.agent.answer_reader import AnswerReader, BrokenAnswer, Piece, ServerError, said_error

CONNECT_SECONDS = 5.0
ERROR_BYTES = 64 << 10
"""Of an error's body, what is read."""
SHOWN_CHARS = 300
QUOTE_CHARS = 16
"""A server's own words are shown only if they repeat nothing of this length from the prompt."""
LISTED_MODELS = 8
LIST_SECONDS = 5.0


class Message(TypedDict):
    """As the server takes it."""

    role: str
    content: str


class ChatModel:
    """One model of one server. Use as a context manager."""

    def __init__(self, settings: Settings) -> None:
        """Raises `SettingsError` when no server or no model is named."""
        if settings.chat_url is None:
            raise SettingsError(
                "--base-url (SCOPE_RECALL_CHAT_URL) is missing: the OpenAI-compatible server to ask, such as "
                "http://127.0.0.1:8080/v1"
            )
        if settings.chat_model is None:
            raise SettingsError("--model (SCOPE_RECALL_CHAT_MODEL) is missing: the name of the model to ask")
        self.name = settings.chat_model
        self._url = checked_url(settings.chat_url)
        self._silence = settings.chat_timeout
        self._client = httpx.Client(
            headers={**headers(settings.chat_api_key), "Accept": "text/event-stream, application/json"},
            timeout=httpx.Timeout(self._silence, connect=min(CONNECT_SECONDS, self._silence)),
            trust_env=not is_loopback(self._url),
        )

    def __enter__(self) -> ChatModel:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    @property
    def _where(self) -> str:
        return f"model {self.name} at {without_password(self._url)}:"

    def answer(self, messages: Sequence[Message]) -> Generator[Piece]:
        """The answer, piece by piece. Closing the iterator ends the connection.

        Raises `ModelAway` when the server does not answer, says nothing for the time-out, fails or breaks off, and
        `ModelError` when it refuses the request or is no such server.
        """
        body = json_body({"model": self.name, "messages": list(messages), "stream": True})
        try:
            with self._client.stream("POST", f"{self._url}/chat/completions", content=body) as response:
                if response.status_code != 200:
                    raise self._refused(response, messages)
                yield from self._pieces(response)
        except (httpx.RequestError, BrokenAnswer, ServerError) as error:
            raise ModelAway(f"{self._where} {self._meaning(error, messages)}") from None

    def _meaning(self, error: Exception, messages: Sequence[Message]) -> str:
        """Why there is no whole answer, and what to do."""
        match error:
            case httpx.ConnectTimeout():
                return f"no connection within {CONNECT_SECONDS:g} s; is the URL right?"
            case httpx.TimeoutException():
                return (
                    f"said nothing for {self._silence:g} s; ask again, or raise --timeout (SCOPE_RECALL_CHAT_TIMEOUT)"
                )
            case httpx.ConnectError():
                return f"cannot be reached ({error}); start the server, or check its URL"
            case BrokenAnswer():
                return f"the server sent {error}; its log may say why"
            case ServerError():
                return f"the server failed while it answered{_own_words(str(error), messages)}"
        return f"the connection broke off ({type(error).__name__}); ask again"

    def _pieces(self, response: httpx.Response) -> Iterator[Piece]:
        reader = AnswerReader()
        heard = time.monotonic()
        for data in response.iter_bytes():
            pieces = reader.feed(data)
            yield from pieces
            now = time.monotonic()
            if any(piece.text or piece.thought for piece in pieces):
                heard = now
            elif now - heard > self._silence:  # signs of life alone, for ever, are no answer
                raise httpx.ReadTimeout("")
            if reader.is_done:
                return
        yield from reader.close()
        if not reader.is_answer:
            kind = response.headers.get("content-type", "unnamed content")
            raise ModelError(
                f"{self._where} what answers there ({kind}) is no OpenAI-compatible chat server; is the URL right? "
                "It often ends in /v1"
            )
        if not reader.is_ended:
            raise BrokenAnswer("the beginning of an answer and closed the connection before its end")

    def _refused(self, response: httpx.Response, messages: Sequence[Message]) -> ScopeRecallError:
        """What a status other than 200 means."""
        code = response.status_code
        said = _own_words(said_error(_json_of(response)), messages)
        answered = f"{self._where} HTTP {code}{said}"
        if code in (401, 403):
            return ModelError(f"{answered}. Give the server's key by --api-key or SCOPE_RECALL_CHAT_API_KEY")
        if code == 429:
            wait = seconds_of(response.headers.get("retry-after"))
            when = "later" if wait is None else f"in {wait:g} s"
            return ModelAway(f"{answered}. It has too many requests, or the key's quota is used up: ask again {when}")
        if code in (400, 404, 405, 422):
            return ModelError(f"{answered}. {self._known_models()}")
        if code >= 500 or code in (408, 425):
            return ModelAway(f"{answered}. The server failed; its log may say why, and asking again may help")
        return ModelError(f"{answered}. Check --base-url, which often ends in /v1")

    def _known_models(self) -> str:
        """What to check after a refusal, with the models that the server names."""
        try:
            found = self._client.get(f"{self._url}/models", timeout=LIST_SECONDS).json()
            names = [str(one["id"]) for one in found["data"]]
        except (httpx.HTTPError, ValueError, TypeError, KeyError, RecursionError):
            return "Check --base-url, which often ends in /v1, and --model"
        if self.name in names:
            return f"It does serve {self.name}, so the request itself is what it minds, such as its length"
        more = f" and {len(names) - LISTED_MODELS} more" if len(names) > LISTED_MODELS else ""
        return f"It does not serve {self.name!r}; it has {', '.join(names[:LISTED_MODELS]) or 'no model'}{more}"


def _json_of(response: httpx.Response) -> object:
    """The JSON of an error's body, as far as it is read."""
    body = b""
    for part in response.iter_bytes():
        body += part
        if len(body) > ERROR_BYTES:
            return None
    try:
        return httpx.Response(200, content=body).json()
    except (ValueError, RecursionError):
        return None


def _own_words(said: str, messages: Sequence[Message]) -> str:
    """What the server says, shortened, unless it repeats the prompt: what was said to it stays out of errors."""
    said = " ".join(said.split())[:SHOWN_CHARS]
    prompt = "\n".join(message["content"] for message in messages)
    quotes = any(said[at : at + QUOTE_CHARS] in prompt for at in range(len(said) - QUOTE_CHARS + 1))
    return f": {said}" if said and not quotes else ""
