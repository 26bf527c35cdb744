"""What model servers say of the models that they list. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from toolspeak.data.messages import JSON


def model_rows(answer: JSON) -> dict[str, Mapping[str, Any]]:
    """An API's description of each model it lists, by the model's name."""
    if not isinstance(answer, dict):
        return {}
    table = cast("dict[str, Any]", answer)
    rows: Any = table.get("data") or table.get("models") or []
    rows_listed = cast("list[Any]", rows) if isinstance(rows, list) else []
    tables = [cast("dict[str, Any]", row) for row in rows_listed if isinstance(row, dict)]
    named_rows = [(row.get("id") or row.get("name"), row) for row in tables]
    return {name.removeprefix("models/"): row for name, row in named_rows if isinstance(name, str)}


_WINDOWS = ("max_model_len", "context_length", "max_context_length", "n_ctx")
"""Fields with a model's window: of vLLM and SGLang, OpenRouter and Together, LM Studio, llama.cpp."""


def window_of(row: Mapping[str, Any]) -> tuple[int, str]:
    """The window in tokens of a model that a server describes, and the name of its field; (0, "") without one."""
    meta = row.get("meta")
    for table in (row, cast("dict[str, Any]", meta) if isinstance(meta, dict) else {}):
        for field in _WINDOWS:
            tokens = table.get(field)
            if isinstance(tokens, int) and tokens > 0:
                return tokens, field
    return 0, ""
