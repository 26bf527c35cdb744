"""Answers of a given type: requests them by schema, by a tool or in words, and checks them."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from types import UnionType
from typing import Any, Generic, Literal, TypeAlias, cast, get_args

from typing_extensions import TypeVar

from toolspeak.agent.drivers.base import Driver
from toolspeak.agent.drivers.native import NativeDriver
from toolspeak.agent.drivers.text import schema_instruction
from toolspeak.agent.state.partial_output import PartialAnswer
from toolspeak.data.messages import JSON, ToolCall
from toolspeak.data.values import quick
from toolspeak.dialects.text.extract import json_values, only_object
from toolspeak.errors import AgentStop, ConfigurationError
from toolspeak.tools import Tool, Toolset, pydantic_support, tool
from toolspeak.wire.base import OutputSchema
from toolspeak.wire.strict_schema import is_closed

OutputMode: TypeAlias = Literal["auto", "native", "tool", "prompted"]
_MODES: tuple[OutputMode, ...] = get_args(OutputMode)

FINAL_TOOL = "final_answer"
_MAX_PROBLEMS = 8

_BY_TOOL = f"Give your final answer by calling the tool {FINAL_TOOL}, never as text."


OutputT = TypeVar("OutputT", default=None)
AnswerT = TypeVar("AnswerT", default=None, covariant=True)  # noqa: PLC0105 - users read the name
TypeOfOutput: TypeAlias = type[OutputT] | UnionType


@quick()
class Output(Generic[OutputT]):
    """The type of the answer, and how the agent requests it. A type on its own means `Output(type)`."""

    type: TypeOfOutput[OutputT]
    """Any type that pydantic has a JSON Schema for; `RunResult.output` is the value. For type checkers, name a union:
    `Output[int | str](int | str)`."""
    mode: OutputMode = "auto"
    """"native": the API holds the answer to the schema. "tool": the answer is the argument of a tool. "prompted": the
    instructions hold the schema. "auto": the first of these that the API has."""
    retries: int = 2
    """Answers of another type that go back to the model before the run ends without one."""


@quick()
class CheckedAnswer:
    """An answer as the requested type, or what is wrong with it."""

    value: Any = None
    problems: tuple[str, ...] = ()
    """Why it is not of the type; empty if it is."""


class AnswerType:
    """Asks for an `Output` in one mode, and checks the answers. Raises ConfigurationError for a type without a JSON
    Schema."""

    def __init__(self, type_: Any, mode: Literal["native", "tool", "prompted"], retries: int) -> None:
        if type(retries) is not int or retries < 0:
            raise ConfigurationError(f"Output(retries={retries!r}): expected a number from 0 up")
        self.mode = mode
        self.retries = retries
        self._adapter: pydantic_support.TypeAdapter[Any]
        try:
            self._adapter = pydantic_support.TypeAdapter(type_)
            schema = self._adapter.json_schema()
        except Exception as error:
            raise ConfigurationError(
                f"output: {type_!r} has no JSON Schema ({error}); use a type that pydantic supports"
            ) from error
        # An API's schema is that of an object: any other type becomes a field of one.
        self._is_wrapped = schema.get("type") != "object" or "properties" not in schema
        self.type = type_
        self._plain = schema
        name = re.sub(r"[^\w-]", "_", getattr(type_, "__name__", "") or "answer", flags=re.ASCII)[:64]
        self._name = name or "answer"

    @property
    def schema(self) -> OutputSchema:
        """The schema as an API takes it."""
        if not self._is_wrapped:
            return OutputSchema(self._name, self._plain)
        definitions: JSON = {"$defs": self._plain["$defs"]} if "$defs" in self._plain else {}
        value = {key: each for key, each in self._plain.items() if key != "$defs"}
        return OutputSchema(
            self._name, {"type": "object", "properties": {"value": value}, "required": ["value"], **definitions}
        )

    @property
    def instructions(self) -> str:
        """The words that ask the model for such an answer; empty where the API is sent the schema."""
        if self.mode == "prompted":
            return schema_instruction(self._plain)
        return _BY_TOOL if self.mode == "tool" else ""

    def tool(self) -> Tool:
        """The tool whose argument is the answer; calling it ends the run."""

        def final_answer(answer: Any, call: ToolCall) -> None:
            # As the model wrote it: the JSON of a value may have other and fewer fields than the value is read from.
            raise AgentStop(FINAL_TOOL, answer=json.dumps(call.arguments["answer"]))

        final_answer.__annotations__["answer"] = self.type
        return tool(final_answer, description="Gives the final answer and ends the task.", read_only=True)

    def check(self, answer: str) -> CheckedAnswer:
        """Reads an answer as the type."""
        problems: tuple[str, ...] = ()
        for candidate in json_values(answer):
            for value in self._readings(candidate):
                try:
                    return CheckedAnswer(self._adapter.validate_json(json.dumps(value)))
                except pydantic_support.ValidationError as error:
                    problems = problems or _problems(error)
        # Plain text is an answer too where the type is a string, a word of an enumeration or a date. A JSON object with
        # a mistake in it is not read as such a text, unless the type is just a string.
        if self._plain.get("type") == "string" or only_object(answer) is None:
            with suppress(pydantic_support.ValidationError):
                return CheckedAnswer(self._adapter.validate_json(json.dumps(answer.strip()), strict=True))
        return CheckedAnswer(None, problems or ("it holds no JSON",))

    def partial(self) -> PartialAnswer:
        """Reads an answer while it is written."""
        key = "answer" if self.mode == "tool" else "value" if self._is_wrapped else ""
        return PartialAnswer(self.type, key, is_text=self.mode != "tool" and self._plain.get("type") == "string")

    def correction(self, problems: Sequence[str]) -> str:
        """Asks the model to correct an answer that has these problems."""
        how = f"call {FINAL_TOOL}" if self.mode == "tool" else "write the corrected JSON alone"
        return f"Your answer does not match the requested type: {'; '.join(problems)}. Please {how}."

    def _readings(self, value: JSON) -> list[JSON]:
        if self._is_wrapped and isinstance(value, dict) and [*value] == ["value"]:
            return [value["value"], value]
        return [value]


def _problems(error: pydantic_support.ValidationError) -> tuple[str, ...]:
    errors = error.errors(include_url=False, include_context=False)
    problems = [f"{'.'.join(map(str, each['loc'])) or 'the value'}: {each['msg']}" for each in errors[:_MAX_PROBLEMS]]
    more = [f"and {len(errors) - _MAX_PROBLEMS} more"] if len(errors) > _MAX_PROBLEMS else []
    return (*problems, *more)


def choose_output(output: Any, driver: Driver, *, tools: bool) -> AnswerType | None:
    """The type of an agent's answer; None without an `Output` or a type.

    The mode "auto" is native where the API takes the type's schema (and takes it beside calls, if there are `tools`),
    prompted where calls are text, and else a tool. Raises ConfigurationError for a mode that does not exist or that
    the API lacks.
    """
    if output is None:
        return None
    output = cast("Output[Any]", output) if isinstance(output, Output) else Output[Any](output)
    if output.mode not in _MODES:
        raise ConfigurationError(f"Output(mode={output.mode!r}): expected one of {', '.join(_MODES)}")
    can = driver.provider.capabilities if isinstance(driver, NativeDriver) else None
    if output.mode == "native" and (can is None or not can.output):
        raise ConfigurationError("Output(mode='native') needs an API that takes a schema beside its own tool calls")
    if output.mode != "auto":
        return AnswerType(output.type, output.mode, output.retries)
    if can is None:
        return AnswerType(output.type, "prompted", output.retries)
    if can.output and (not tools or can.output_with_tools):
        native = AnswerType(output.type, "native", output.retries)
        if not can.output_closed or is_closed(native.schema.schema):
            return native
    return AnswerType(output.type, "tool", output.retries)


def with_output(tools: Toolset, output: AnswerType | None) -> Toolset:
    """The tools, with the one that answers if the mode is "tool". Raises ConfigurationError if its name is taken."""
    if output is None or output.mode != "tool":
        return tools
    if tools.get(FINAL_TOOL) is not None:
        raise ConfigurationError(
            f"Output(mode='tool') adds a tool {FINAL_TOOL!r}, but you have a tool of that name: rename it"
        )
    return Toolset([*tools, output.tool()])
