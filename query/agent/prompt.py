"""The messages for the model: template, the session's newest turns, what was recalled, and the question. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from producers.events import TurnEvent
from producers.prompt_template import PromptTemplate
from query.agent.model import Message


def messages_for(template: PromptTemplate, values: Mapping[str, str], history: Sequence[TurnEvent]) -> list[Message]:
    """System message, history, question; `values` are those of the template's fields.

    User and assistant take turns, as many models want it: what one said twice in a row becomes one message, and an
    answer whose question is no longer there is left out.
    """
    system, user = template.fill(values)
    said = [Message(role=event.role, content=event.content) for event in history]
    turns: list[Message] = []
    for message in [*said, Message(role="user", content=user)]:
        if turns and turns[-1]["role"] == message["role"]:
            turns[-1]["content"] += "\n\n" + message["content"]
        elif turns or message["role"] == "user":
            turns.append(message)
    return [Message(role="system", content=system), *turns] if system else turns
