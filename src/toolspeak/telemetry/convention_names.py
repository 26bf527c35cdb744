"""The names of spans, attributes and metrics.

Those that begin with `gen_ai` are of OpenTelemetry's GenAI conventions (open-telemetry/semantic-conventions-genai
v0.1.0). All of them are in development, and no released package has them as constants. `error.type`, `http.…` and
`url.path` are of the general conventions. The rest is toolspeak's own.
"""

from __future__ import annotations

from collections.abc import Mapping

OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
REQUEST_MODEL = "gen_ai.request.model"
RESPONSE_MODEL = "gen_ai.response.model"
FIRST_CHUNK = "gen_ai.response.time_to_first_chunk"
AGENT = "gen_ai.agent.name"
CONVERSATION = "gen_ai.conversation.id"
FINISH_REASONS = "gen_ai.response.finish_reasons"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
CACHED_TOKENS = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE_TOKENS = "gen_ai.usage.cache_creation.input_tokens"
REASONING_TOKENS = "gen_ai.usage.reasoning.output_tokens"
TOOL = "gen_ai.tool.name"
TOOL_TYPE = "gen_ai.tool.type"
CALL_ID = "gen_ai.tool.call.id"
TOKEN_TYPE = "gen_ai.token.type"
ERROR = "error.type"
METHOD = "http.request.method"
PATH = "url.path"
STATUS_CODE = "http.response.status_code"

# With content alone.
INPUT_MESSAGES = "gen_ai.input.messages"
OUTPUT_MESSAGES = "gen_ai.output.messages"
SYSTEM = "gen_ai.system_instructions"
TOOL_DEFINITIONS = "gen_ai.tool.definitions"
ARGUMENTS = "gen_ai.tool.call.arguments"
RESULT = "gen_ai.tool.call.result"

RUN = "toolspeak.run.id"
PARENT_RUN = "toolspeak.run.parent_id"
STATUS = "toolspeak.run.status"
REASON = "toolspeak.run.reason"
RESUMED_FROM = "toolspeak.run.resumed_from"
STEP = "toolspeak.step"
STEPS = "toolspeak.steps"
DIALECT = "toolspeak.dialect"
CALLS = "toolspeak.calls"
MALFORMED_CALLS = "toolspeak.malformed_calls"
MALFORMED_CODE = "toolspeak.malformed.code"
RETRIES = "toolspeak.retries"
USAGE_ESTIMATED = "toolspeak.usage.estimated"
COST = "toolspeak.cost"
CALL_STATUS = "toolspeak.call.status"
EARLY = "toolspeak.call.early"
DECISION = "toolspeak.approval.decision"
HANDED_OFF_FROM = "toolspeak.handoff.from"
LINK = "toolspeak.link"
LIMIT = "toolspeak.limit"
REQUEST_ID = "toolspeak.gateway.request.id"
GATEWAY_KEY = "toolspeak.gateway.key"
GATEWAY_UPSTREAM = "toolspeak.gateway.upstream"
GATEWAY_ATTEMPTS = "toolspeak.gateway.attempts"
GATEWAY_WARNINGS = "toolspeak.gateway.warnings"

OTHER = "_OTHER"
"""The value of an attribute of a metric where its own could be any text."""

_PROVIDERS: Mapping[str, str] = {
    "gemini": "gcp.gemini",
    "mistral": "mistral_ai",
    "openai-responses": "openai",
    "xai": "x_ai",
}
"""The providers that the conventions name otherwise than we do."""


def provider_and_model(name: str) -> tuple[str, str]:
    """The provider, as the conventions name it, and the model of a driver's name (`openai:qwen3`)."""
    provider, colon, model = name.partition(":")
    return (_PROVIDERS.get(provider, provider), model) if colon else (OTHER, name)
