"""Drives the real hermes-agent by JSON lines; run by an interpreter that has it, in a home of the test's own.

    hermes_driver.py MODEL_URL

`say` talks through AIAgent.run_conversation, `close` ends an agent as the command line does, `manage` calls the
MemoryManager, `load` asks its loader. Answers a line of JSON each; what Hermes prints goes to standard error.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

ANSWERS = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)

from hermes_state import SessionDB  # noqa: E402
from run_agent import AIAgent  # noqa: E402

HOME = Path(os.environ["HERMES_HOME"])
DATABASE = SessionDB(HOME / "state.db")
AGENTS: dict[str, tuple[Any, list[Any]]] = {}
MANAGERS: dict[str, Any] = {}


def say(model: str, agent: str, text: str, **who: Any) -> dict[str, Any]:
    if agent not in AGENTS:
        made = AIAgent(
            base_url=model,
            api_key="none",
            provider="custom",
            model="fake",
            quiet_mode=True,
            skip_context_files=True,
            enabled_toolsets=["memory"],
            session_db=DATABASE,
            session_id=agent,
            **{"platform": "cli"} | who,
        )
        AGENTS[agent] = made, []
    made, history = AGENTS[agent]
    started = time.monotonic()
    result = made.run_conversation(text, conversation_history=list(history))
    seconds = time.monotonic() - started
    history[:] = result["messages"]
    tools = sorted(made.valid_tool_names)
    return {"answer": result["final_response"], "error": result.get("error"), "seconds": seconds, "tools": tools}


def close(model: str, agent: str) -> dict[str, Any]:
    made, history = AGENTS.pop(agent)
    manager = made._memory_manager
    started = time.monotonic()
    made.shutdown_memory_provider(history)
    return {"seconds": time.monotonic() - started, "drain": manager.shutdown_drain_state}


def load(model: str, name: str) -> dict[str, Any]:
    from plugins.memory import discover_memory_providers, load_memory_provider

    provider = load_memory_provider(name)
    found = {one: available for one, _, available in discover_memory_providers()}
    visible = sorted(set(sys.modules) & {"torch", "lancedb", "rq", "numpy", "pyarrow", "sqlalchemy"})
    return {
        "name": provider and provider.name,
        "bases": [one.__module__ for one in type(provider).__mro__],
        "available": found.get(name),
        "heavy": visible,
        "schema": provider and provider.get_config_schema(),
        "backup": provider and provider.backup_paths(),
    }


def manage(model: str, session: str, call: str, *arguments: Any, **named: Any) -> dict[str, Any]:
    from agent.memory_manager import MemoryManager
    from plugins.memory import load_memory_provider

    if session not in MANAGERS:
        manager = MemoryManager()
        manager.add_provider(load_memory_provider("scope-recall"))
        MANAGERS[session] = manager
    started = time.monotonic()
    result = getattr(MANAGERS[session], call)(*arguments, **named)
    return {"result": result if isinstance(result, (str, bool, list)) else None, "seconds": time.monotonic() - started}


CALLS = {"say": say, "close": close, "load": load, "manage": manage}

if __name__ == "__main__":
    for line in sys.stdin:
        name, arguments, named = json.loads(line)
        print(json.dumps(CALLS[name](sys.argv[1], *arguments, **named), default=str), file=ANSWERS)
    os._exit(0)
