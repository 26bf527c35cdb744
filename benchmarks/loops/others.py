"""Other runtimes, each with its own kind of scripted model, so that the work of its provider adapters is included.

llm does not check the types of arguments; the others do. openai-agents receives ready-made events, without the time
that its SDK takes to read them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from worker import CLOSING, OPENING, PIECE, RUN, Subject, next_turn

FRAME = len(OPENING) + len(CLOSING)


class Llm(Subject):
    def __init__(self) -> None:
        import llm
        from llm.parts import StreamEvent

        class Fake(llm.AsyncModel):
            model_id = "fake"
            can_stream = True
            supports_tools = True

            async def execute(self, prompt, stream, response, conversation):
                script, turn = RUN.get(), await next_turn()
                if turn is None:
                    for _ in range(script.pieces if not script.steps else 0):
                        yield PIECE
                    if not script.pieces:
                        yield "done"
                    return
                for call_id, name, arguments in turn:
                    if script.pieces:
                        yield StreamEvent(type="tool_call_name", chunk=name, tool_call_id=call_id)
                        for piece in (OPENING, *[PIECE] * script.pieces, CLOSING):
                            yield StreamEvent(type="tool_call_args", chunk=piece, tool_call_id=call_id)
                        arguments = json.dumps({"text": PIECE * script.pieces})
                    tool_call = llm.ToolCall(name=name, arguments=json.loads(arguments), tool_call_id=call_id)
                    response.add_tool_call(tool_call)

        self._llm, self.model = llm, Fake()
        super().__init__()

    def wrap(self, functions: Sequence[Callable[..., Any]]) -> Any:
        return [self._llm.Tool.function(function) for function in functions]

    def make(self, tools: Any) -> Any:
        return self.model.conversation(tools=tools)

    def _chain(self) -> Any:
        return self.model.conversation(tools=self.tools, chain_limit=RUN.get().steps + 10).chain("go")

    async def run(self) -> str:
        return await self._chain().text()

    async def stream(self) -> int:
        length = 0
        if RUN.get().steps:
            async for event in self._chain().astream_events():
                length += len(event.chunk) if event.type == "tool_call_args" else 0
            return length - FRAME
        async for text in self._chain():
            length += len(text)
        return length


class Agno(Subject):
    def __init__(self) -> None:
        from agno.agent import Agent
        from agno.models.base import Model
        from agno.models.response import ModelResponse

        def part(call_id: str | None, name: str | None, text: str) -> Any:
            kind = "function" if call_id else None
            call = {"index": 0, "id": call_id, "type": kind, "function": {"name": name, "arguments": text}}
            return ModelResponse(tool_calls=[call])

        @dataclass
        class Fake(Model):
            id: str = "fake"

            def invoke(self, *args, **options):
                raise NotImplementedError

            invoke_stream = _parse_provider_response = _parse_provider_response_delta = invoke

            async def ainvoke(self, messages, assistant_message, **options):
                turn = await next_turn()
                answer = ModelResponse(role="assistant")
                if turn is None:
                    answer.content = "done"
                else:
                    answer.tool_calls = [
                        {"id": i, "type": "function", "function": {"name": name, "arguments": arguments}}
                        for i, name, arguments in turn
                    ]
                return answer

            async def ainvoke_stream(self, messages, assistant_message, **options):
                script, turn = RUN.get(), await next_turn()
                if turn is None:
                    for _ in range(1 if script.steps else script.pieces):
                        yield ModelResponse(role="assistant", content=PIECE)
                    return
                yield part(turn[0][0], turn[0][1], OPENING)
                for _ in range(script.pieces):
                    yield part(None, None, PIECE)
                yield part(None, None, CLOSING)

            def parse_tool_calls(self, tool_calls_data):
                # Joins fragments as its adapter of the OpenAI API does.
                calls: list[dict[str, Any]] = []
                for data in tool_calls_data:
                    function = data["function"]
                    if data["id"]:
                        calls.append({"id": data["id"], "type": data["type"], "function": dict(function)})
                    else:
                        calls[-1]["function"]["arguments"] += function["arguments"]
                return calls

        self._agent, self.model = Agent, Fake()
        super().__init__()

    def wrap(self, functions: Sequence[Callable[..., Any]]) -> Any:
        return list(functions)

    def make(self, tools: Any) -> Any:
        return self._agent(model=self.model, tools=tools, telemetry=False)

    async def run(self) -> str:
        return (await self.agent.arun("go", session_id=str(id(RUN.get())))).content

    async def stream(self) -> int:
        length, step_count = 0, RUN.get().steps
        async for event in self.agent.arun(
            "go", session_id=str(id(RUN.get())), stream=True, stream_events=bool(step_count)
        ):
            content = getattr(event, "content", None)
            if event.event == "RunContent" and content:
                length += len(content)
        return -1 if step_count else length  # it does not forward arguments


class LangGraph(Subject):
    def __init__(self) -> None:
        from langchain.agents import create_agent
        from langchain_core.language_models import BaseChatModel
        from langchain_core.messages import AIMessage, AIMessageChunk
        from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
        from langchain_core.tools import tool

        class Fake(BaseChatModel):
            @property
            def _llm_type(self) -> str:
                return "fake"

            def bind_tools(self, tools, **options):
                return self.bind(tools=[getattr(each, "name", None) for each in tools])

            def _generate(self, *args, **options):
                raise NotImplementedError

            async def _agenerate(self, messages, stop=None, run_manager=None, **options):
                turn = await next_turn()
                calls = [
                    {"name": name, "args": json.loads(arguments), "id": i, "type": "tool_call"}
                    for i, name, arguments in turn or ()
                ]
                message = AIMessage(content="" if calls else "done", tool_calls=calls)
                return ChatResult(generations=[ChatGeneration(message=message)])

        class Streaming(Fake):
            async def _astream(self, messages, stop=None, run_manager=None, **options):
                script, turn = RUN.get(), await next_turn()
                if turn is None:
                    texts = [PIECE] * (1 if script.steps else script.pieces)
                    pieces = ((text, AIMessageChunk(content=text)) for text in texts)
                else:
                    call_id, name, _ = turn[0]
                    parts = [(OPENING, name, call_id)]
                    parts += [(text, None, None) for text in (*[PIECE] * script.pieces, CLOSING)]
                    pieces = (
                        ("", AIMessageChunk(content="", tool_call_chunks=[_call_chunk(text, name, call_id)]))
                        for text, name, call_id in parts
                    )
                for text, message in pieces:
                    chunk = ChatGenerationChunk(message=message)
                    if run_manager:
                        await run_manager.on_llm_new_token(text, chunk=chunk)
                    yield chunk

        def _call_chunk(text: str, name: str | None, call_id: str | None) -> Any:
            return {"name": name, "args": text, "id": call_id, "index": 0, "type": "tool_call_chunk"}

        self._create, self._tool, self._chunk = create_agent, tool, AIMessageChunk
        self.model = Fake()
        super().__init__()
        self._streaming = create_agent(Streaming(), self.tools)

    def wrap(self, functions: Sequence[Callable[..., Any]]) -> Any:
        return [self._tool(function) for function in functions]

    def make(self, tools: Any) -> Any:
        return self._create(self.model, tools)

    async def run(self) -> str:
        options = {"recursion_limit": 2 * RUN.get().steps + 50}
        state = await self.agent.ainvoke({"messages": [("user", "go")]}, options)
        return state["messages"][-1].content

    async def stream(self) -> int:
        length, calls = 0, RUN.get().steps
        async for chunk, _ in self._streaming.astream({"messages": [("user", "go")]}, stream_mode="messages"):
            if isinstance(chunk, self._chunk):
                parts = [each["args"] or "" for each in chunk.tool_call_chunks] if calls else [chunk.content]
                length += sum(map(len, parts))
        return length - FRAME if calls else length


class PydanticAi(Subject):
    def __init__(self) -> None:
        from pydantic_ai import Agent, Tool
        from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
        from pydantic_ai.models import Model, StreamedResponse
        from pydantic_ai.usage import RequestUsage, UsageLimits

        now = datetime.now(UTC)

        @dataclass
        class Stream(StreamedResponse):
            async def _get_event_iterator(self):
                script, turn, parts = RUN.get(), await next_turn(), self._parts_manager
                self._usage = RequestUsage(input_tokens=1, output_tokens=1)
                if turn is None:
                    for _ in range(1 if script.steps else script.pieces):
                        for event in parts.handle_text_delta(vendor_part_id="content", content=PIECE):
                            yield event
                    return
                call_id, name, _ = turn[0]
                for i, text in enumerate((OPENING, *[PIECE] * script.pieces, CLOSING)):
                    event = parts.handle_tool_call_delta(
                        vendor_part_id=0,
                        tool_name=None if i else name,
                        args=text,
                        tool_call_id=None if i else call_id,
                    )
                    if event is not None:
                        yield event

            model_name = provider_name = "fake"
            provider_url = None
            timestamp = now

        class Fake(Model):
            model_name = system = "fake"
            provider = None

            async def request(self, messages, model_settings, model_request_parameters):
                self.prepare_request(model_settings, model_request_parameters)
                turn = await next_turn()
                parts = [ToolCallPart(name, arguments, tool_call_id=i) for i, name, arguments in turn or ()]
                usage = RequestUsage(input_tokens=1, output_tokens=1)
                return ModelResponse(parts=parts or [TextPart("done")], usage=usage, model_name="fake", timestamp=now)

            @asynccontextmanager
            async def request_stream(self, messages, model_settings, model_request_parameters, run_context=None):
                _, parameters = self.prepare_request(model_settings, model_request_parameters)
                yield Stream(model_request_parameters=parameters)

        self._agent, self._tool, self.model = Agent, Tool, Fake()
        self._limits = UsageLimits(request_limit=None)
        super().__init__()

    def wrap(self, functions: Sequence[Callable[..., Any]]) -> Any:
        return [self._tool(function) for function in functions]

    def make(self, tools: Any) -> Any:
        return self._agent(self.model, tools=tools)

    async def run(self) -> str:
        return (await self.agent.run("go", usage_limits=self._limits)).output

    async def stream(self) -> int:
        length = 0
        if not RUN.get().steps:
            async with self.agent.run_stream("go", usage_limits=self._limits) as result:
                async for text in result.stream_text(delta=True, debounce_by=None):
                    length += len(text)
            return length
        async with self.agent.iter("go", usage_limits=self._limits) as run:
            async for node in run:
                if self._agent.is_model_request_node(node):
                    async with node.stream(run.ctx) as events:
                        async for event in events:
                            length += len(getattr(getattr(event, "delta", None), "args_delta", None) or "")
        return -1 if length else 0  # the first piece arrives with the start of the call


class OpenAiAgents(Subject):
    def __init__(self) -> None:
        import agents
        from openai.types import responses

        def message(text: str) -> Any:
            part = responses.ResponseOutputText(text=text, type="output_text", annotations=[], logprobs=[])
            return responses.ResponseOutputMessage(
                id="m", type="message", role="assistant", status="completed", content=[part]
            )

        def call(call_id: str, name: str, arguments: str) -> Any:
            return responses.ResponseFunctionToolCall(
                id=f"fc_{call_id}", call_id=call_id, type="function_call", name=name, arguments=arguments
            )

        def response(output: list[Any]) -> Any:
            return responses.Response(
                id="r",
                created_at=0,
                model="fake",
                object="response",
                output=output,
                tool_choice="none",
                tools=[],
                parallel_tool_calls=True,
                status="completed",
            )

        class Fake(agents.Model):
            async def get_response(self, *args, **options):
                turn = await next_turn()
                output = [message("done")] if turn is None else [call(*each) for each in turn]
                usage = agents.Usage(requests=1, input_tokens=1, output_tokens=1, total_tokens=2)
                return agents.ModelResponse(output=output, usage=usage, response_id=None)

            async def stream_response(self, *args, **options):
                script, turn = RUN.get(), await next_turn()
                number = {"output_index": 0, "sequence_number": 1}
                if turn is None:
                    count = 1 if script.steps else script.pieces
                    event = responses.ResponseTextDeltaEvent(
                        type="response.output_text.delta",
                        item_id="m",
                        content_index=0,
                        delta=PIECE,
                        logprobs=[],
                        **number,
                    )
                    for _ in range(count):
                        yield event
                    item = message(PIECE * count)
                else:
                    call_id, name, _ = turn[0]
                    empty_call = call(call_id, name, "")
                    yield responses.ResponseOutputItemAddedEvent(
                        type="response.output_item.added", item=empty_call, **number
                    )
                    opening, piece, closing = (
                        responses.ResponseFunctionCallArgumentsDeltaEvent(
                            type="response.function_call_arguments.delta", item_id=empty_call.id, delta=text, **number
                        )
                        for text in (OPENING, PIECE, CLOSING)
                    )
                    yield opening
                    for _ in range(script.pieces):
                        yield piece
                    yield closing
                    item = call(call_id, name, OPENING + PIECE * script.pieces + CLOSING)
                yield responses.ResponseOutputItemDoneEvent(type="response.output_item.done", item=item, **number)
                yield responses.ResponseCompletedEvent(
                    type="response.completed", response=response([item]), sequence_number=2
                )

        self._agents, self.model = agents, Fake()
        self._config = agents.RunConfig(tracing_disabled=True)
        super().__init__()

    def wrap(self, functions: Sequence[Callable[..., Any]]) -> Any:
        return [self._agents.function_tool(function) for function in functions]

    def make(self, tools: Any) -> Any:
        return self._agents.Agent(name="agent", model=self.model, tools=tools)

    async def run(self) -> str:
        turns = RUN.get().steps + 5
        return (await self._agents.Runner.run(self.agent, "go", max_turns=turns, run_config=self._config)).final_output

    async def stream(self) -> int:
        calls, length = RUN.get().steps, 0
        delta_type = "response.function_call_arguments.delta" if calls else "response.output_text.delta"
        result = self._agents.Runner.run_streamed(self.agent, "go", run_config=self._config)
        async for event in result.stream_events():
            if event.type == "raw_response_event" and event.data.type == delta_type:
                length += len(event.data.delta)
        return length - FRAME if calls else length
