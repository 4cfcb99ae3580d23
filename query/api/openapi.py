"""The service's description of itself. Pure."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from query.api.problems import MEDIA_TYPE

JSON = "application/json"


def describe_problems(app: FastAPI) -> None:
    """Say of every problem that it is sent as one; FastAPI knows one media type for all answers of a route."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        description = generate()  # made once and kept by FastAPI
        for operations in description["paths"].values():
            for operation in operations.values():
                for answer in operation["responses"].values():
                    content = answer.get("content", {})
                    if content.get(JSON, {}).get("schema", {}).get("$ref", "").endswith("/Problem"):
                        content[MEDIA_TYPE] = content.pop(JSON)
        return description

    app.openapi = openapi  # type: ignore[method-assign]
