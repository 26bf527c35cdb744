"""A ReAct decision: what the model thinks, and whether it calls a tool or answers. Pure.

Source: InstructorPHP, "Tool Calling Internals", ReActDriver.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Literal, TypeAlias, cast

from toolspeak.data.messages import (
    JSON,
    MalformedCall,
    Message,
    ReasoningPart,
    TextMessage,
    TextPart,
    ToolCall,
    ToolChoice,
    ToolResult,
)
from toolspeak.data.tools import ToolSpec
from toolspeak.data.values import evolve, quick
from toolspeak.dialects.prompts.references import resolve_references
from toolspeak.dialects.text.extract import json_object, json_objects, only_object
from toolspeak.errors import suggest
from toolspeak.wire.json_conversion import text_of

EXTRACTION, VALIDATION = "decision_extraction", "decision_validation"
"""The pseudo-tools that a bad decision is a call of."""

PseudoTool: TypeAlias = Literal["decision_extraction", "decision_validation"]

_PROMPT = """\
INSTRUCTIONS:
- Decide on one step at a time. Every reply is one JSON object and nothing else:
  {{"thought": "...", "type": "call_tool", "tool": "NAME", "args": {{...}}}}
  {{"thought": "...", "type": "final_answer", "answer": "..."}}
- `type` is "call_tool" as long as you need to act or to know more, else "final_answer".
- `tool` is a name of the catalog, `args` an object that follows its schema: `{{}}` if it takes nothing.
- The result of a call comes as an Observation. Never write one yourself.
- If an Observation is an ERROR, find out why before you continue.

TOOL CATALOG (names, descriptions):
{catalog}

TOOL SCHEMAS (name, parameters):
{schemas}"""


_TYPES = ("call_tool", "final_answer")


@quick()
class ReActDecision:
    """`tool` and `args` of a call, or an `answer`; `as_written` is the object as the model wrote it."""

    thought: str
    type: Literal["call_tool", "final_answer"]
    tool: str = ""
    args: Mapping[str, JSON] = field(default_factory=dict[str, JSON])
    answer: str = ""
    as_written: Mapping[str, JSON] = field(default_factory=dict[str, JSON])


@quick()
class BadDecision:
    """No decision, and why: for the model, which is asked again."""

    stage: PseudoTool
    errors: tuple[str, ...]

    @property
    def reason(self) -> str:
        return "; ".join(self.errors)


def react_prompt(tools: Sequence[ToolSpec]) -> str:
    """What teaches the model to decide."""
    catalog = [{"name": spec.name, "description": spec.description} for spec in tools]
    schemas = [{"name": spec.name, "parameters": dict(resolve_references(spec.parameters))} for spec in tools]
    lines = ("\n".join(json.dumps(each, ensure_ascii=False) for each in rows) for rows in (catalog, schemas))
    return _PROMPT.format(catalog=next(lines), schemas=next(lines))


def choice_instruction(choice: ToolChoice) -> str:
    """The words that ask for a tool choice, which a schema does not say."""
    match choice.mode:
        case "auto":
            return ""
        case "none":
            return 'In this reply "type" must be "final_answer".'
        case "required":
            return 'In this reply "type" must be "call_tool".'
        case "specific":
            return f'In this reply "type" must be "call_tool", and "tool" {json.dumps(choice.name)}.'


def decision_schema(tools: Sequence[ToolSpec]) -> Mapping[str, JSON]:
    """The form of a decision, for APIs that answer by a schema. `args` are checked by us: which ones depends on the
    tool."""
    properties: dict[str, JSON] = {
        "thought": {"type": "string"},
        "type": {"type": "string", "enum": ["call_tool", "final_answer"]},
        "tool": {"type": "string", "enum": [*(spec.name for spec in tools), ""]},
        "args": {"type": "object"},
        "answer": {"type": "string"},
    }
    return {"type": "object", "properties": properties, "required": ["thought", "type"]}


def read_decision(
    text: str,
    tools: Sequence[ToolSpec],
    choice: ToolChoice = ToolChoice(),
    read: Callable[[Mapping[str, JSON]], Mapping[str, JSON]] | None = None,
) -> ReActDecision | BadDecision:
    """The decision in a reply: the whole text, in a code fence, or from a bracket on; the first object that says it is
    one, whatever JSON stands before it. `read` turns an object of another form into one of ours."""
    objects = [(each, each if read is None else read(each)) for each in json_objects(text)]
    pair = next((pair for pair in objects if pair[1].get("type") in _TYPES), None)
    if pair is None and (whole := json_object(text)) is not None:
        pair = whole, whole if read is None else read(whole)
    if pair is None:
        return BadDecision(EXTRACTION, ("your reply holds no JSON object; write one decision and nothing else",))
    as_written, decision = pair
    thought = decision.get("thought")
    thought = thought if isinstance(thought, str) else ""
    match decision.get("type"):
        case "call_tool":
            outcome = _call(decision, thought, tools, choice)
        case "final_answer":
            outcome = _answer(decision, thought, choice)
        case other:
            return BadDecision(VALIDATION, (f'"type" is "call_tool" or "final_answer", not {_excerpt(other)}',))
    return evolve(outcome, as_written=as_written) if isinstance(outcome, ReActDecision) else outcome


def _call(
    decision: Mapping[str, JSON], thought: str, tools: Sequence[ToolSpec], choice: ToolChoice
) -> ReActDecision | BadDecision:
    name, args = decision.get("tool"), decision.get("args")
    if choice.mode == "none":
        return BadDecision(VALIDATION, ('no tool can be called any more; "type" must be "final_answer"',))
    if not isinstance(name, str) or not name:
        return BadDecision(VALIDATION, ('"tool" must name the tool to call',))
    spec = next((spec for spec in tools if spec.name == name), None)
    if spec is None:
        return BadDecision(VALIDATION, (f"there is no tool {suggest(name, [spec.name for spec in tools])}",))
    if choice.mode == "specific" and name != choice.name:
        return BadDecision(VALIDATION, (f'"tool" must be {choice.name!r} now',))
    if isinstance(args, str):  # the object written as a text, as models also do in native calls
        args = only_object(args) or args
    if not isinstance(args, dict | None):
        return BadDecision(VALIDATION, (f'"args" must be an object, not {_excerpt(args)}',))
    arguments = cast("dict[str, JSON]", args or {})
    required_names = cast("Iterable[str]", spec.parameters.get("required") or ())
    missing = [each for each in required_names if each not in arguments]
    if missing:
        return BadDecision(VALIDATION, tuple(f'"args" lacks {each!r}, which {name!r} requires' for each in missing))
    return ReActDecision(thought, "call_tool", name, arguments)


def _answer(decision: Mapping[str, JSON], thought: str, choice: ToolChoice) -> ReActDecision | BadDecision:
    answer = decision.get("answer")
    if choice.mode in ("required", "specific"):
        which = f"the tool {choice.name!r}" if choice.mode == "specific" else "a tool"
        return BadDecision(VALIDATION, (f'you must call {which} first; "type" must be "call_tool"',))
    if answer is None or answer == "":
        return BadDecision(VALIDATION, ('"answer" must hold the answer',))
    text = answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)
    return ReActDecision(thought, "final_answer", answer=text)


def _excerpt(value: JSON) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:59]}…"


def react_message(message: Message) -> TextMessage:
    """A message as the model reads it: Thought, Action and Action Input; an Observation for every result."""
    if message.role == "assistant":
        return TextMessage("assistant", "\n".join(_texts_of(message)))
    if message.results:
        return TextMessage("user", "\n".join(map(_observation, message.results)))
    return TextMessage(message.role, message.text)


def _texts_of(message: Message) -> Iterable[str]:
    acts = bool(message.calls)
    for part in message.parts:
        match part:
            case ReasoningPart(text) if acts:
                yield f"Thought: {text}"
            case TextPart(text):
                yield text
            case ToolCall():
                yield f"Action: {part.name}\nAction Input: {json.dumps(dict(part.arguments), ensure_ascii=False)}"
            case MalformedCall(raw=raw):
                yield raw
            case _:
                pass


def _observation(result: ToolResult) -> str:
    text = text_of(result.content)
    return f"Observation: ERROR - {text}" if result.status == "failure" else f"Observation: {text}"
