"""Function tools of the OpenAI Agents SDK as toolspeak tools, and toolspeak tools for its agents."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, cast

from agents import FunctionTool, RunContextWrapper, ToolOutputFileContent, ToolOutputImage, ToolOutputText
from agents.tool_context import ToolContext
from typing_extensions import Unpack

from toolspeak.adapters.foreign_tools import EffectsByName, by_schema, check_effects, foreign_tool
from toolspeak.adapters.turn_batches import AdapterOptions, ApprovalMissing, TurnBatches
from toolspeak.data.approvals import Decision
from toolspeak.data.messages import ContentPart, FilePart, ImagePart, JsonPart, TextPart, ToolCall
from toolspeak.errors import ToolDefinitionError
from toolspeak.execute import BatchContext
from toolspeak.tools import RunContext, Tool, Toolset

_NO_EFFECTS: EffectsByName = MappingProxyType({})
_MOST_RUNS = 256
"""The most runs at once whose next calls are remembered."""


def from_openai_agents(tools: Iterable[FunctionTool], *, effects: EffectsByName = _NO_EFFECTS) -> Toolset:
    """Makes toolspeak tools from FunctionTools of the OpenAI Agents SDK (`@function_tool`).

    `effects`: each tool's effects, by name. A tool without an entry may touch everything, so it needs approval.

    - toolspeak checks the arguments against the tool's schema.
    - A tool gets the run's `deps` as its `context`.
    - A tool with `needs_approval` always needs approval.
    - Guardrails and `is_enabled` are not applied.
    - The SDK turns a tool's exception into text. If the tool has `failure_error_function=None`, the exception fails the
      call instead.

    Raises ToolDefinitionError for a tool of another kind, a schema that cannot be used, an invalid name, and effects of
    an unknown tool.
    """
    tool_list = list(tools)
    for each in tool_list:
        if not isinstance(cast("object", each), FunctionTool):
            raise ToolDefinitionError(f"{type(each).__name__} is hosted by OpenAI or has no function; leave it out")
    check_effects(effects, [each.name for each in tool_list])
    return Toolset([_from_one(each, effects) for each in tool_list])


def _from_one(foreign: FunctionTool, effects: EffectsByName) -> Tool:
    async def invoke(arguments: dict[str, Any], _: Mapping[str, Any], context: RunContext[Any] | None) -> object:
        text = json.dumps(arguments)
        call_id = uuid.uuid4().hex if context is None else context.call.id
        deps = None if context is None else context.deps
        theirs: ToolContext[Any] = ToolContext(deps, tool_name=foreign.name, tool_call_id=call_id, tool_arguments=text)
        answer: object = await foreign.on_invoke_tool(theirs, text)
        return [_part(each) for each in cast("list[object]", answer)] if isinstance(answer, list) else _part(answer)

    return foreign_tool(
        foreign.name,
        foreign.description,
        foreign.params_json_schema,
        by_schema(foreign.params_json_schema, f"tool {foreign.name!r}"),
        invoke,
        effects,
        timeout=foreign.timeout_seconds,
        needs_approval=foreign.needs_approval is not False,
    )


def _part(output: object) -> object:
    match output:
        case ToolOutputText():
            return TextPart(output.text)
        case ToolOutputImage(image_url=str(url)) if url.startswith("data:"):
            media_type, _, data = url.removeprefix("data:").partition(";base64,")
            return ImagePart(media_type, base64.b64decode(data))
        case ToolOutputImage(image_url=str(url)):
            return ImagePart("image/*", url=url)
        case ToolOutputFileContent(file_data=str(data)):
            return FilePart(output.filename or "file", "application/octet-stream", base64.b64decode(data))
        case ToolOutputImage() | ToolOutputFileContent():
            return JsonPart(output.model_dump(exclude_none=True))
        case _:
            return output


def to_openai_agents(
    tools: Toolset | Iterable[Tool | Callable[..., Any]], **options: Unpack[AdapterOptions]
) -> list[FunctionTool]:
    """Makes tools for an agent of the OpenAI Agents SDK: `Agent(name="…", tools=[*to_openai_agents([read, write])])`.

    - The calls of a turn run as one batch, so their effects decide the order. The SDK checks the approvals of all calls
      of a turn before it makes the first: so the batch begins when the last of them has arrived.
    - Tools get the run's `context` as `RunContext.deps`. The calls of a turn share `RunContext.memory`.
    - A call that fails becomes text that the model reads.

    Without `approve`, a call whose effects need approval interrupts the run, and the run continues from its state. The
    SDK asks for approvals before it makes any call. By then the turn's other calls have run, even those that should run
    after the interrupted call. A call that a policy escalates does not run, and the model reads the reason.

    Raises ConfigurationError for unknown options and invalid values.
    """
    batches = TurnBatches("openai-agents", tools, **options)
    call_ids_by_turn: dict[int, list[str]] = {}
    return [_to_one(batches, tool, call_ids_by_turn) for tool in batches.toolset]


def _to_one(batches: TurnBatches, tool: Tool, call_ids_by_turn: dict[int, list[str]]) -> FunctionTool:
    """`call_ids_by_turn`: the calls that the SDK is about to make, by the identity of their run's usage."""

    async def needs_approval(run: RunContextWrapper[Any], arguments: dict[str, Any], call_id: str) -> bool:
        if batches.approver is None and batches.needs_approval(tool.name, arguments):
            return True
        if len(call_ids_by_turn) == _MOST_RUNS and id(run.usage) not in call_ids_by_turn:
            del call_ids_by_turn[next(iter(call_ids_by_turn))]  # a guardrail kept all calls of that turn from running
        call_ids_by_turn.setdefault(id(run.usage), []).append(call_id)
        return False

    async def invoke(context: ToolContext[Any], text: str) -> Any:
        try:
            arguments = json.loads(text or "{}")
        except ValueError:
            arguments = None
        if not isinstance(arguments, dict):
            return "not run: the arguments are not a JSON object"
        arguments = cast("dict[str, Any]", arguments)
        call = ToolCall(context.tool_call_id, tool.name, arguments)
        # The SDK has an approval for each call for which `needs_approval` was true.
        is_approved = batches.approver is None and batches.needs_approval(tool.name, arguments)
        decision = Decision(True, by="openai-agents") if is_approved else None
        # The context and the usage belong to the run. A run's next turn begins when the turn before it has ended.
        run = BatchContext(uuid.uuid4().hex, deps=context.context)
        try:
            expected = call_ids_by_turn.pop(id(context.usage), ())
            result = await batches.run(call, id(context.usage), expected, run, decision)
        except ApprovalMissing as missing:
            return f"not run: {missing.reason}, and a decision is not possible now"
        parts = [_output(part) for part in result.content]
        texts = all(isinstance(part, TextPart | JsonPart) for part in result.content)
        return result.text if texts else parts

    return FunctionTool(
        name=tool.name,
        description=tool.spec.description,
        params_json_schema=dict(tool.spec.parameters),
        on_invoke_tool=invoke,
        # The SDK's strict mode would make every parameter required.
        strict_json_schema=False,
        needs_approval=needs_approval,
    )


def _output(part: ContentPart) -> ToolOutputText | ToolOutputImage | ToolOutputFileContent:
    match part:
        case TextPart():
            return ToolOutputText(text=part.text)
        case JsonPart():
            return ToolOutputText(text=json.dumps(part.value, ensure_ascii=False))
        case ImagePart(data=None):
            return ToolOutputImage(image_url=part.url)
        case ImagePart():
            data = base64.b64encode(part.data or b"").decode()
            return ToolOutputImage(image_url=f"data:{part.media_type};base64,{data}")
        case FilePart():
            return ToolOutputFileContent(file_data=base64.b64encode(part.data).decode(), filename=part.name)
