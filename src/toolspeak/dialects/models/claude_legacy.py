"""Anthropic's tool use before its API had one: every call an `<invoke>` with the tool's name in an element."""

from __future__ import annotations

from toolspeak.dialects.base import DialectInfo
from toolspeak.dialects.declarations.xml_dialect import XML_RULES, XmlTags, xml_dialect

CLAUDE_LEGACY = xml_dialect(
    DialectInfo(
        "claude-legacy",
        "<function_calls> <invoke> <tool_name>f</tool_name> <parameters> <k>value</k>",
        "anthropics/anthropic-tools, tool_use_package/prompt_constructors.py",
        native_schedule="sequential",
        models=("claude-2.x", "claude-instant"),
        arguments="text, typed by the tool's schema",
        results="<function_results> in a user turn",
        reasoning="",
    ),
    XmlTags(block="function_calls", call="invoke", name="tool_name", arguments="parameters"),
    result="<result>\n<tool_name>{name}</tool_name>\n<stdout>\n{}\n</stdout>\n</result>",
    results="<function_results>\n{}\n</function_results>",
    results_marker=("<function_results>", "</function_results>"),
    reasoning=None,
    live=("function_calls", "function_results"),
    rules=XML_RULES,
)
