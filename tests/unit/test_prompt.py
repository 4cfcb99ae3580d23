"""The prompt has the shape that its template says, whatever is put into it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producers.errors import SettingsError
from producers.events import Role, TurnEvent
from producers.prompt_template import DEFAULT_PROMPT, PromptTemplate
from producers.settings import load_settings
from query.agent.prompt import messages_for

VALUES = {"question": "Q?", "memory": "M", "date": "2026-01-31", "tenant": "acme", "session": "s1"}


def said(*turns: tuple[Role, str]) -> list[TurnEvent]:
    return [TurnEvent(session_id="s", turn_index=n, role=role, content=text) for n, (role, text) in enumerate(turns)]


def test_the_default_puts_memory_and_question_into_the_users_message() -> None:
    system, user = messages_for(PromptTemplate.parse(DEFAULT_PROMPT), VALUES, [])
    assert system["role"] == "system"
    assert "2026-01-31" in system["content"]
    assert user == {"role": "user", "content": "M\n\nQ?"}


def test_without_a_memory_the_question_stands_alone() -> None:
    messages = messages_for(PromptTemplate.parse(DEFAULT_PROMPT), {**VALUES, "memory": ""}, [])
    assert messages[-1]["content"] == "Q?"


@pytest.mark.parametrize(
    ("template", "system", "user"),
    [
        (
            "你是助手。今天是$date。\n[user]\n记忆：${memory}\n问题：$question",
            "你是助手。今天是2026-01-31。",
            "记忆：M\n问题：Q?",
        ),
        ("only a system message of $tenant, $session", "only a system message of acme, s1", "Q?"),
        ("[user]\n$question costs $$5", "", "Q? costs $5"),
        ("[system]\na\n[user]\n$question\n[system]\nb", "a\nb", "Q?"),
        ("", "", "Q?"),
    ],
)
def test_a_template_decides_the_messages(template: str, system: str, user: str) -> None:
    messages = messages_for(PromptTemplate.parse(template), VALUES, [])
    assert [message["content"] for message in messages] == ([system] if system else []) + [user]


@given(st.text(max_size=50), st.text(max_size=50))
def test_what_is_put_in_is_never_read_as_a_template(question: str, memory: str) -> None:
    template = PromptTemplate.parse("[user]\n<$memory|$question>")
    values = {**VALUES, "question": question + "$memory", "memory": memory + "${question} $nothing $"}
    assert template.fill(values)[1] == f"<{values['memory']}|{values['question']}>"


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("hello\n$memry\n[user]\n$question", r"line 2: unknown field \$memry; did you mean \$memory\?"),
        ("$zebra", r"line 1: unknown field \$zebra; there are \$question, \$memory"),
        ("5 $", r"line 1: a \$ that begins no field; write \$\$"),
        ("$question", "belongs behind a line"),
        ("[user]\n$memory", r"needs \$question once"),
        ("[user]\n$question $question", r"needs \$question once"),
        ("[user]\n${question.__class__}", r"a \$ that begins no field"),
        ("x" * 20_001, "over the limit of 20,000"),
    ],
)
def test_a_wrong_template_is_refused_with_line_and_field(template: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        PromptTemplate.parse(template)
    with pytest.raises(SettingsError, match="setting prompt_template = "):
        load_settings(prompt_template=template)


def test_user_and_assistant_take_turns() -> None:
    history = said(("assistant", "lost its question"), ("user", "a"), ("user", "b"), ("assistant", "c"), ("user", "d"))
    messages = messages_for(PromptTemplate.parse("S"), VALUES, history)
    assert [(message["role"], message["content"]) for message in messages] == [
        ("system", "S"),
        ("user", "a\n\nb"),
        ("assistant", "c"),
        ("user", "d\n\nQ?"),
    ]
