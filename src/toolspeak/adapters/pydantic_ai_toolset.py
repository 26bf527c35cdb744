"""toolspeak tools for an agent of pydantic-ai."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from pydantic_ai import BinaryContent, ImageUrl
from pydantic_ai.exceptions import ApprovalRequired, ToolFailed
from pydantic_ai.messages import ModelResponse, ToolCallPart
from pydantic_ai.tools import RunContext, ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
from pydantic_core import SchemaValidator, core_schema
from typing_extensions import Unpack

from toolspeak.adapters.turn_batches import AdapterOptions, ApprovalMissing, TurnBatches
from toolspeak.data.approvals import Decision
from toolspeak.data.messages import FilePart, ImagePart, JsonPart, TextPart, ToolCall, ToolResult
from toolspeak.execute import BatchContext, RunScope
from toolspeak.tools import Tool, Toolset

_ANY_OBJECT = SchemaValidator(core_schema.dict_schema(core_schema.str_schema()))
"""The executor validates the arguments: its errors name every problem at once."""


def to_pydantic_ai(
    tools: Toolset | Iterable[Tool | Callable[..., Any]],
    *,
    toolset_id: str | None = None,
    **options: Unpack[AdapterOptions],
) -> AbstractToolset[Any]:
    """Makes a toolset for a pydantic-ai agent: `Agent(model, toolsets=[to_pydantic_ai([read, write])])`.

    `toolset_id`: the toolset's id, which pydantic-ai's durable runs need.

    - The calls of a turn run as one batch, so their effects decide the order. The framework's own tools in the turn run
      at the same time as the batch.
    - Tools get the agent's `deps` as `RunContext.deps`. The calls of one agent run share `RunContext.memory`.
    - A call that fails becomes a failed result, which the model reads. It does not count against the tool's retries.

    If a call needs approval and `approve` does not decide, the call is deferred. So is a call that must run after it.
    The agent run ends with pydantic-ai's DeferredToolRequests, which must be among the agent's output types. The calls
    run when the agent gets DeferredToolResults that approve them. The other calls of the turn have run by then.

    Raises ConfigurationError for unknown options and invalid values.
    """
    return _ToolspeakToolset(TurnBatches("pydantic-ai", tools, **options), toolset_id)


class _ToolspeakToolset(AbstractToolset[Any]):
    """The toolset. Each agent run gets a copy, which holds the run's memory."""

    def __init__(self, batches: TurnBatches, toolset_id: str | None) -> None:
        self._batches = batches
        self._id = toolset_id
        self._memory: dict[str, Any] = {}
        self._scope = RunScope()

    @property
    def id(self) -> str | None:
        return self._id

    async def for_run(self, ctx: RunContext[Any]) -> AbstractToolset[Any]:
        return _ToolspeakToolset(self._batches, self._id)

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        return {spec.name: self._toolset_tool(spec.name, ctx.max_retries) for spec in self._batches.toolset.specs}

    def _toolset_tool(self, name: str, retries: int) -> ToolsetTool[Any]:
        tool = self._batches.toolset.get(name)
        assert tool is not None
        spec = tool.now
        # A wrapper that renames the tool leaves its metadata: they identify a turn's calls of this toolset.
        definition = ToolDefinition(
            name=name,
            description=spec.description,
            parameters_json_schema=dict(spec.parameters),
            metadata={"toolspeak": id(self._batches)},
        )
        return ToolsetTool(toolset=self, tool_def=definition, max_retries=retries, args_validator=_ANY_OBJECT)

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        context = BatchContext(
            ctx.run_id or "", ctx.run_step, ctx.deps, self._memory, scope=self._scope, agent=_agent_name(ctx)
        )
        call = ToolCall(ctx.tool_call_id or name, name, tool_args)
        decision = Decision(True, by="pydantic-ai") if ctx.tool_call_approved else None
        try:
            result = await self._batches.run(
                call, (ctx.run_id, ctx.run_step, id(self)), self._calls_of_turn(ctx), context, decision
            )
        except ApprovalMissing as missing:
            raise ApprovalRequired(metadata=missing.as_json()) from None
        if result.status == "failure":
            raise ToolFailed(result.text)
        return _return_value(result)

    def _calls_of_turn(self, ctx: RunContext[Any]) -> list[str]:
        """The ids of the turn's calls of this toolset, in order."""
        manager, last = ctx.tool_manager, ctx.messages[-1] if ctx.messages else None
        if manager is None or not isinstance(last, ModelResponse):
            return []
        ids: list[str] = []
        for part in last.parts:
            if isinstance(part, ToolCallPart):
                definition = manager.get_tool_def(part.tool_name)
                metadata = (definition and definition.metadata) or {}
                if metadata.get("toolspeak") == id(self._batches):
                    ids.append(part.tool_call_id)
        return ids


def _agent_name(ctx: RunContext[Any]) -> str:
    return (ctx.agent.name if ctx.agent is not None else None) or "pydantic-ai"


def _return_value(result: ToolResult) -> Any:
    """The content for pydantic-ai: a single part, or a list of parts."""
    values: list[Any] = []
    for part in result.content:
        match part:
            case TextPart():
                values.append(part.text)
            case JsonPart():
                values.append(part.value)
            case ImagePart(data=None):
                values.append(ImageUrl(url=part.url or "", media_type=part.media_type))
            case ImagePart() | FilePart():
                values.append(BinaryContent(data=part.data or b"", media_type=part.media_type))
    return values[0] if len(values) == 1 else values
