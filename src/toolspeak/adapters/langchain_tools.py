"""Tools of LangChain as toolspeak tools, and toolspeak tools for agents of LangChain and graphs of LangGraph."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Annotated, Any, cast, get_args, get_origin, get_type_hints

from langchain.tools import ToolRuntime
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, InjectedToolArg, InjectedToolCallId, ToolException
from langchain_core.utils.function_calling import convert_to_openai_function
from langgraph.types import Command, interrupt
from pydantic import BaseModel, ConfigDict, PrivateAttr
from typing_extensions import Unpack

from toolspeak.adapters.foreign_tools import EffectsByName, by_schema, check_effects, foreign_tool
from toolspeak.adapters.turn_batches import AdapterOptions, ApprovalMissing, TurnBatches
from toolspeak.agent.sync import run_sync
from toolspeak.data.approvals import Decision
from toolspeak.data.messages import ContentPart, FilePart, ImagePart, JsonPart, TextPart, ToolCall, ToolResult
from toolspeak.data.values import JSON
from toolspeak.errors import ConfigurationError, ToolDefinitionError, ToolError
from toolspeak.execute import BatchContext
from toolspeak.tools import RunContext, Tool, Toolset

_NO_EFFECTS: EffectsByName = MappingProxyType({})


# --- from LangChain ---------------------------------------------------------------------------------------------------


def from_langchain(tools: Iterable[BaseTool], *, effects: EffectsByName = _NO_EFFECTS) -> Toolset:
    """Makes toolspeak tools from LangChain tools: `@tool` functions, StructuredTool and other BaseTools.

    `effects`: each tool's effects, by name. A tool without an entry may touch everything, so it needs approval.

    - LangChain validates the arguments. If a tool's `args_schema` is a JSON Schema, toolspeak checks them against it.
    - A ToolRuntime has the run's `deps` as its `context`. It has no state and no store.
    - A ToolException fails the call with its message.
    - A synchronous tool runs in a thread.
    - A result's artifact is dropped.

    Raises ToolDefinitionError for an invalid name, a schema that cannot be used, an injected parameter other than
    ToolRuntime and InjectedToolCallId, and effects of an unknown tool.
    """
    tool_list = list(tools)
    check_effects(effects, [each.name for each in tool_list])
    return Toolset([_from_one(each, effects) for each in tool_list])


def _from_one(foreign: BaseTool, effects: EffectsByName) -> Tool:
    runtimes: list[str] = []
    for parameter, annotation in _injected_parameters(foreign).items():
        if _is_kind(annotation, ToolRuntime):
            runtimes.append(parameter)
        elif not _is_kind(annotation, InjectedToolCallId):
            raise ToolDefinitionError(
                f"tool {foreign.name!r}: nothing can be injected into its parameter {parameter!r}; take a ToolRuntime,"
                " whose `context` is the run's deps, or bind the value with functools.partial"
            )
    definition = convert_to_openai_function(foreign)
    schema: Any = foreign.tool_call_schema

    def by_model(arguments: dict[str, Any]) -> Mapping[str, Any]:
        # LangChain also accepts pydantic 1 models.
        model: object = (schema.model_validate if issubclass(schema, BaseModel) else schema.parse_obj)(arguments)
        return vars(model)

    def request(arguments: dict[str, Any], context: RunContext[Any] | None) -> Any:
        call_id = uuid.uuid4().hex if context is None else context.call.id
        runtime = _runtime(call_id, context)
        complete = {**arguments, **dict.fromkeys(runtimes, runtime)}
        return {"type": "tool_call", "id": call_id, "name": foreign.name, "args": complete}

    async def invoke(arguments: dict[str, Any], _: Mapping[str, Any], context: RunContext[Any] | None) -> object:
        try:
            return _content(await foreign.ainvoke(request(arguments, context)))
        except ToolException as error:
            raise ToolError(str(error)) from error

    def invoke_sync(arguments: dict[str, Any], _: Mapping[str, Any], context: RunContext[Any] | None) -> object:
        try:
            return _content(foreign.invoke(request(arguments, context)))
        except ToolException as error:
            raise ToolError(str(error)) from error

    has_coroutine = getattr(foreign, "coroutine", None) is not None
    is_async = has_coroutine if hasattr(foreign, "coroutine") else type(foreign)._arun is not BaseTool._arun  # pyright: ignore[reportPrivateUsage] - subclasses override it
    return foreign_tool(
        foreign.name,
        str(definition.get("description") or ""),
        cast("dict[str, Any]", definition["parameters"]),
        by_schema(cast("dict[str, Any]", schema), f"tool {foreign.name!r}") if isinstance(schema, dict) else by_model,
        invoke if is_async else invoke_sync,
        effects,
        is_async=is_async,
    )


def _injected_parameters(foreign: BaseTool) -> dict[str, Any]:
    """The parameters of the function and of the schema that LangChain injects, with their annotations."""
    function = getattr(foreign, "coroutine", None) or getattr(foreign, "func", None) or foreign._run  # pyright: ignore[reportPrivateUsage] - the function of a subclass
    annotations: dict[str, Any] = {}
    for source in (foreign.args_schema, function):
        if source is not None and not isinstance(source, dict):
            annotations |= get_type_hints(source, include_extras=True)
    return {
        name: annotation
        for name, annotation in annotations.items()
        if name != "return" and (_is_kind(annotation, InjectedToolArg) or _is_kind(annotation, ToolRuntime))
    }


def _is_kind(annotation: Any, kind: type) -> bool:
    """Whether an annotation is this class or a generic of it, or holds it in `Annotated` or in a member of a union."""
    if isinstance(annotation, kind) or (isinstance(annotation, type) and issubclass(annotation, kind)):
        return True
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated or not (isinstance(origin, type) and issubclass(origin, kind)):
        return any(_is_kind(each, kind) for each in arguments)
    return True


def _runtime(call_id: str, context: RunContext[Any] | None) -> ToolRuntime[Any, Any]:
    def write(chunk: object) -> None:
        if context is not None:
            context.progress(str(chunk))

    deps = None if context is None else context.deps
    return ToolRuntime({"messages": []}, deps, RunnableConfig(), write, call_id, None)


def _content(answer: object) -> object:
    """Converts a LangChain tool's answer to a toolspeak return value. Raises ToolError for an error."""
    if isinstance(answer, Command):
        return f"[the tool has run and returned a {answer!r}, which only a graph of LangGraph can apply]"
    if not isinstance(answer, ToolMessage):
        return answer
    if answer.status == "error":
        raise ToolError(answer.text)
    blocks = answer.content
    return blocks if isinstance(blocks, str) else [_part(block) for block in blocks]


def _part(block: object) -> object:
    """Converts a block of content to a part; a block of another kind to JSON."""
    if not isinstance(block, dict):
        return TextPart(str(block))
    fields = cast("dict[str, Any]", block)
    kind, media_type = fields.get("type"), str(fields.get("mime_type", "application/octet-stream"))
    if kind == "text":
        return TextPart(str(fields.get("text", "")))
    if kind == "image" and "url" in fields:
        return ImagePart(media_type, url=str(fields["url"]))
    if kind in ("image", "file", "audio", "video") and "base64" in fields:
        data = base64.b64decode(fields["base64"])
        return ImagePart(media_type, data) if kind == "image" else FilePart(str(kind), media_type, data)
    return JsonPart(fields)


# --- to LangChain -----------------------------------------------------------------------------------------------------

_RUNTIME = "toolspeak_runtime"


def to_langchain(
    tools: Toolset | Iterable[Tool | Callable[..., Any]], **options: Unpack[AdapterOptions]
) -> list[BaseTool]:
    """Makes tools for a LangChain agent (`create_agent(model, to_langchain([read, write]))`) or a LangGraph ToolNode.

    - The calls of a turn run as one batch, so their effects decide the order. The framework's own tools in the turn run
      at the same time as the batch.
    - Tools get the runtime's `context` as `RunContext.deps`. The calls of a turn share `RunContext.memory`.
    - A call that fails becomes a ToolMessage with the status "error", which the model reads.
    - A ToolMessage's artifact is the tool's value as JSON.
    - `invoke` runs the calls in toolspeak's own event loop, in a thread.

    If a call needs approval and `approve` does not decide, the call interrupts the graph. So does a call that must run
    after it. The interrupt's value is `{"call": …, "reason": …}`. `Command(resume=…)` answers with True, False or
    `{"approved": False, "reason": "…"}`. The other calls of the turn have run by then.

    Raises ConfigurationError for unknown options and invalid values. Outside a graph, or in a graph without a
    checkpointer, a call that needs a person's approval raises it too.
    """
    batches = TurnBatches("langchain", tools, **options)
    return [_LangChainTool.of(batches, spec.name) for spec in batches.toolset.specs]


class _InjectedParameters(BaseModel):
    """The schema from which ToolNode reads which parameters to inject."""

    model_config = ConfigDict(arbitrary_types_allowed=True)
    toolspeak_runtime: ToolRuntime


class _LangChainTool(BaseTool):
    """One tool. Its arguments go to the executor unchanged, whatever their names."""

    response_format: Any = "content_and_artifact"
    handle_tool_error: Any = True
    _batches: TurnBatches = PrivateAttr()

    @classmethod
    def of(cls, batches: TurnBatches, name: str) -> _LangChainTool:
        tool = batches.toolset.get(name)
        assert tool is not None
        structured_tool = cls(name=name, description=tool.spec.description, args_schema=dict(tool.spec.parameters))
        structured_tool._batches = batches
        return structured_tool

    def get_input_schema(self, config: RunnableConfig | None = None) -> type[BaseModel]:
        return _InjectedParameters

    def _to_args_and_kwargs(
        self, tool_input: str | dict[str, Any], tool_call_id: str | None
    ) -> tuple[tuple[str, ...], dict[str, Any]]:
        if isinstance(tool_input, str):
            raise ToolException("the arguments must be an object, not text")
        arguments = dict(tool_input)
        runtime = arguments.pop(_RUNTIME, None)
        call = ToolCall(tool_call_id or uuid.uuid4().hex, self.name, arguments)
        return (), {"call": call, "runtime": runtime}

    def _run(self, call: ToolCall, runtime: ToolRuntime[Any, Any] | None) -> tuple[Any, JSON]:
        def attempt(decision: Decision | None) -> ToolResult:
            return run_sync(self._attempt(call, runtime, decision))

        try:
            result = attempt(None)
        except ApprovalMissing as missing:
            result = attempt(_decision_about(call, missing, runtime))
        return _message_content(result)

    async def _arun(self, call: ToolCall, runtime: ToolRuntime[Any, Any] | None) -> tuple[Any, JSON]:
        try:
            result = await self._attempt(call, runtime, None)
        except ApprovalMissing as missing:
            result = await self._attempt(call, runtime, _decision_about(call, missing, runtime))
        return _message_content(result)

    async def _attempt(
        self, call: ToolCall, runtime: ToolRuntime[Any, Any] | None, decision: Decision | None
    ) -> ToolResult:
        if runtime is None:
            return await self._batches.run(call, call.id, (call.id,), BatchContext(uuid.uuid4().hex), decision)
        info, names = runtime.execution_info, {spec.name for spec in self._batches.toolset.specs}
        checkpoint = "" if info is None else info.checkpoint_id
        message = _last_message(runtime.state)
        expected = [] if message is None else [str(each["id"]) for each in message.tool_calls if each["name"] in names]
        message_id = None if message is None else message.id or id(message)
        run_id = str((info and (info.run_id or info.thread_id)) or message_id or call.id)
        context = BatchContext(run_id, deps=runtime.context)
        return await self._batches.run(call, (checkpoint, message_id), expected, context, decision)


def _last_message(state: Any) -> AIMessage | None:
    """The model's last message in a graph's state."""
    messages: Any = state
    if isinstance(state, Mapping):
        messages = cast("Mapping[str, Any]", state).get("messages")
    elif not isinstance(state, list):
        messages = getattr(state, "messages", None)
    newest_first = cast("Iterable[object]", reversed(messages or ()))
    return next((each for each in newest_first if isinstance(each, AIMessage)), None)


def _decision_about(call: ToolCall, missing: ApprovalMissing, runtime: ToolRuntime[Any, Any] | None) -> Decision:
    """Interrupts the graph for a decision about the call. Returns the decision once the graph resumes."""
    info = None if runtime is None else runtime.execution_info
    if info is None or info.thread_id is None:
        raise ConfigurationError(
            f"the call of {call.name} needs approval ({missing.reason}), and there is no approver here: pass"
            " to_langchain(…, approve=…), or run the tool in a graph with a checkpointer, which it can interrupt"
        )
    question = {"call": {"id": call.id, "name": call.name, "args": dict(call.arguments)}, **missing.as_json()}
    answer: Any = interrupt(question)
    if isinstance(answer, bool):
        return Decision(answer, by="langgraph")
    if isinstance(answer, Mapping):
        fields = cast("Mapping[str, Any]", answer)
        is_approved, reason = fields.get("approved"), fields.get("reason", "")
        if isinstance(is_approved, bool) and isinstance(reason, str):
            return Decision(is_approved, reason, by="langgraph")
    raise ConfigurationError(
        f"answer the call of {call.name} with True, False or {{'approved': …, 'reason': …}}, not {answer!r}"
    )


def _message_content(result: ToolResult) -> tuple[Any, JSON]:
    """The content and the artifact of a ToolMessage. The artifact is JSON, which any checkpointer can store. Raises
    ToolException for a failed call."""
    if result.status == "failure":
        raise ToolException(result.text)
    if all(isinstance(part, TextPart | JsonPart) for part in result.content):
        return result.text, result.structured
    return [_block(part) for part in result.content], result.structured


def _block(part: ContentPart) -> dict[str, Any]:
    match part:
        case TextPart():
            return {"type": "text", "text": part.text}
        case ImagePart(data=None):
            return {"type": "image", "url": part.url, "mime_type": part.media_type}
        case ImagePart() | FilePart():
            kind = "image" if isinstance(part, ImagePart) else "file"
            data = base64.b64encode(part.data or b"").decode()
            return {"type": kind, "base64": data, "mime_type": part.media_type}
        case JsonPart():
            return {"type": "text", "text": ToolResult("", "", "success", (part,)).text}
