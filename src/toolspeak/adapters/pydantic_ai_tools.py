"""Tools and toolsets of pydantic-ai as toolspeak tools."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, cast

from pydantic_ai import BinaryContent, FunctionToolset, ImageUrl, ToolReturn
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ModelRetry, ToolFailed, UserError
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models import Model
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.tools import RunContext
from pydantic_ai.tools import Tool as PydanticTool
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
from pydantic_ai.usage import RunUsage

from toolspeak.adapters.foreign_tools import EffectsByName, check_effects, foreign_tool
from toolspeak.data.messages import FilePart, ImagePart
from toolspeak.errors import ToolDefinitionError, ToolError
from toolspeak.tools import RunContext as ToolspeakContext
from toolspeak.tools import Tool, Toolset
from toolspeak.tools.returned_values import ReturnValue, to_content

_NO_EFFECTS: EffectsByName = MappingProxyType({})


def from_pydantic_ai(
    tools: Iterable[PydanticTool[Any] | Callable[..., Any]] | FunctionToolset[Any],
    *,
    effects: EffectsByName = _NO_EFFECTS,
    model: Model | None = None,
) -> Toolset:
    """Makes toolspeak tools from pydantic-ai tools: `Tool`s, functions that take its RunContext first, a
    FunctionToolset.

    - `effects`: each tool's effects, by name. A tool without an entry may touch everything, so it needs approval.
    - `model`: the tools' `RunContext.model`. Without it, a request to that model raises an error.

    pydantic-ai validates the arguments. A tool gets the run's `deps` as its own `deps`, and no messages. ModelRetry and
    ToolFailed fail the call with their message. A tool that requires approval always needs it. A synchronous tool
    without a pydantic-ai timeout runs to its end, whatever the executor's time limit.

    Raises ToolDefinitionError for an invalid name, effects of an unknown tool, and a `prepare` function. For a tool
    with a `prepare` function use `from_pydantic_ai_toolset`.
    """
    toolset = tools if isinstance(tools, FunctionToolset) else FunctionToolset(list(tools))
    context = _context(None, model)
    foreign_tools: dict[str, ToolsetTool[Any]] = {}
    for name, each in toolset.tools.items():
        if each.prepare is not None:
            raise ToolDefinitionError(
                f"the tool {name!r} has a prepare function, which needs a run: use from_pydantic_ai_toolset"
            )
        foreign_tools[name] = toolset.tool_for_tool_def(each.tool_def, ctx=context)
    return _toolset_of(foreign_tools, effects, model)


async def from_pydantic_ai_toolset(
    toolset: AbstractToolset[Any], *, deps: Any = None, effects: EffectsByName = _NO_EFFECTS, model: Model | None = None
) -> Toolset:
    """Makes toolspeak tools from the tools that a pydantic-ai toolset lists now.

    `deps`: the `deps` of `prepare` functions and filters while the toolset lists its tools.
    `effects`, `model`: as in `from_pydantic_ai`.

    A toolset with connections (MCPToolset) must be open: call this function and use the tools inside
    `async with toolset`. The toolset's instructions are dropped. Raises ToolDefinitionError as `from_pydantic_ai` does,
    and for a tool whose result comes from outside the run.
    """
    return _toolset_of(await toolset.get_tools(_context(deps, model)), effects, model)


def _toolset_of(foreign_tools: Mapping[str, ToolsetTool[Any]], effects: EffectsByName, model: Model | None) -> Toolset:
    check_effects(effects, list(foreign_tools))
    return Toolset([_tool(name, each, effects, model) for name, each in foreign_tools.items()])


def _tool(name: str, toolset_tool: ToolsetTool[Any], effects: EffectsByName, model: Model | None) -> Tool:
    definition = toolset_tool.tool_def
    if definition.kind == "external":
        raise ToolDefinitionError(
            f"the tool {name!r} is external, so its result comes from outside the run; leave it out with"
            " toolset.filtered(…)"
        )

    def validate(arguments: dict[str, Any]) -> Mapping[str, Any]:
        return cast("Mapping[str, Any]", toolset_tool.args_validator.validate_python(arguments))

    async def invoke(
        arguments: dict[str, Any], values: Mapping[str, Any], context: ToolspeakContext[Any] | None
    ) -> object:
        foreign = _context(None if context is None else context.deps, model)
        foreign = replace(foreign, tool_name=name, max_retries=toolset_tool.max_retries, tool_call_approved=True)
        if context is not None:
            state = context.state
            foreign = replace(
                foreign,
                tool_call_id=context.call.id,
                run_id=None if state is None else state.run_id,
                run_step=0 if state is None else state.step,
            )
        try:
            if toolset_tool.args_validator_func is not None:
                validation = toolset_tool.args_validator_func(foreign, **values)
                if validation is not None:
                    await validation
            value: object = await toolset_tool.toolset.call_tool(name, dict(values), foreign, toolset_tool)
        except (ModelRetry, ToolFailed) as error:
            raise ToolError(error.message) from error
        except (ApprovalRequired, CallDeferred) as error:
            raise ToolError(
                f"the running tool deferred its result ({type(error).__name__}), which toolspeak does not support:"
                " declare effects that need approval, so that a person decides before the tool runs"
            ) from error
        return _content(value)

    return foreign_tool(
        name,
        definition.description or "",
        definition.parameters_json_schema,
        validate,
        invoke,
        effects,
        timeout=definition.timeout,
        needs_approval=definition.kind == "unapproved",
    )


def _context(deps: Any, model: Model | None) -> RunContext[Any]:
    return RunContext(deps=deps, model=model or FunctionModel(_no_model), usage=RunUsage(), max_retries=1)


def _no_model(_messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
    raise UserError("the tool uses RunContext.model, which is not set: pass from_pydantic_ai(…, model=…)")


def _content(value: object) -> object:
    """The tool's value for toolspeak: media as parts, and the content of a ToolReturn after its value."""
    if isinstance(value, ToolReturn):
        answer = cast("ToolReturn[object]", value)
        parts, structured_content = to_content(_content(answer.return_value))
        content: Any = answer.content or ()
        more: list[object] = [content] if isinstance(content, str) else list(content)
        content = tuple(part for each in more for part in to_content(_part(each))[0])
        return ReturnValue((*parts, *content), structured_content)
    if isinstance(value, list | tuple):
        items = cast("Sequence[object]", value)
        if any(isinstance(each, BinaryContent | ImageUrl) for each in items):
            return [part for each in items for part in to_content(_part(each))[0]]
        return items
    return _part(value)


def _part(value: object) -> object:
    if isinstance(value, ImageUrl):
        return ImagePart("image/*", url=value.url)
    if not isinstance(value, BinaryContent):
        return value
    if value.media_type.startswith("image/"):
        return ImagePart(value.media_type, value.data)
    return FilePart(value.identifier, value.media_type, value.data)
