"""A model's answer is the same however a server writes and cuts it, and what is no answer is named."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chat_server import delta
from query.agent.answer_reader import AnswerReader, BrokenAnswer, Piece, ServerError


def read(data: bytes, size: int = 1 << 20) -> list[Piece]:
    reader = AnswerReader()
    pieces = [piece for start in range(0, len(data), size) for piece in reader.feed(data[start : start + size])]
    return pieces + reader.close()


def text(data: bytes, size: int = 1 << 20) -> str:
    return "".join(piece.text for piece in read(data, size))


def event(chunk: Any) -> bytes:
    return f"data: {json.dumps(chunk)}\n\n".encode()


def choice(**fields: Any) -> dict[str, Any]:
    return {"choices": [fields]}


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=6), st.integers(1, 40))
def test_any_text_in_any_cut_comes_out_as_it_was(words: list[str], size: int) -> None:
    data = b"".join(map(delta, words)) + b"data: [DONE]\n\n"
    assert text(data, size) == "".join(words)


def test_half_a_surrogate_pair_waits_for_the_other_half() -> None:
    first = rb'data: {"choices":[{"delta":{"content":"a\ud83e"}}]}' + b"\n\n"
    second = rb'data: {"choices":[{"delta":{"content":"\udd93b"}}]}' + b"\n\n"
    assert [piece.text for piece in read(first + second)] == ["a", "🦓b"]
    assert text(first) == "a"


def test_a_lone_surrogate_is_replaced() -> None:
    assert text(rb'data: {"choices":[{"delta":{"content":"\ud83ex \udd93"}}]}' + b"\n\n") == "\ufffdx \ufffd"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (delta("a") + delta("b"), "ab"),
        (b"data:" + delta("a")[6:], "a"),
        (b": keep alive\n\n" + delta("a") + b"data: [DONE]\n\n" + delta("not this"), "a"),
        (delta("a").replace(b"\n\n", b"\n") + delta("b").replace(b"\n\n", b"\n"), "ab"),
        (delta("a").replace(b"\n\n", b"\n") + b"data: [DONE]\n", "a"),
        (event(choice(delta=None)) + event(choice(delta={"role": "assistant"})) + delta("a"), "a"),
        (event({"choices": [], "usage": {"total_tokens": 3}}) + event({"id": "x"}) + delta("a"), "a"),
        (event(choice(delta={"content": [{"type": "text", "text": "a"}, {"type": "image"}]})), "a"),
        (event(choice(delta={"content": "a", "reasoning_content": "hm"}, message={"content": "whole"})), "a"),
        (event(choice(delta={"content": None, "refusal": "I cannot"})), "I cannot"),
        (event(choice(text="a")), "a"),
        (event({"error": None, **choice(delta={"content": "a"})}), "a"),
        (json.dumps(choice(message={"content": "a whole answer"}, finish_reason="stop")).encode(), "a whole answer"),
        (b"\n\n  " + json.dumps(choice(message={"content": "behind blanks"}), indent=1).encode(), "behind blanks"),
    ],
)
def test_every_dialect_is_understood(data: bytes, said: str) -> None:
    assert text(data) == text(data, 1) == said


def test_thoughts_and_the_reason_to_stop_are_told_from_the_text() -> None:
    for name in ("reasoning_content", "reasoning", "thinking"):
        pieces = read(event(choice(delta={name: "hm"})) + event(choice(delta={}, finish_reason="length")))
        assert pieces == [Piece(thought="hm"), Piece(finish="length")]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b'data: {"choices": [{"delta"\n\n', "broken JSON"),
        (delta("a") + b"data: {secret words\n\n", "broken JSON"),
        (b'{"choices": [', "broken JSON"),
        (b"data: [1]\n\n", "not an object"),
        (b"[1]", "not an object"),
        (event(choice(delta="text")), "a delta that is not an object"),
        (event({"choices": ["text"]}), "a choice that is not an object"),
        (b"data: " + b"[" * 100_000 + b"\n\n", "broken JSON"),
    ],
)
def test_what_is_no_answer_is_refused_without_being_quoted(data: bytes, reason: str) -> None:
    with pytest.raises(BrokenAnswer, match=reason) as caught:
        read(data)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "error", [{"message": "out of memory", "code": 500}, "out of memory", {"code": "out of memory"}]
)
@pytest.mark.parametrize("is_whole", [True, False])
def test_an_error_in_an_answer_is_the_servers(error: Any, is_whole: bool) -> None:
    body = {"error": error}
    with pytest.raises(ServerError, match=r"^out of memory$"):
        read(json.dumps(body).encode() if is_whole else delta("a") + event(body))


@pytest.mark.parametrize("data", [b"", b"  \n", b"<html>hello</html>", b"event: ping\n\n", b"data: {}\n\n"])
def test_what_belongs_to_no_answer_is_not_taken_for_one(data: bytes) -> None:
    reader = AnswerReader()
    assert reader.feed(data) + reader.close() == []
    assert not reader.is_answer
