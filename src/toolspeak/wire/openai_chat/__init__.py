"""OpenAI Chat Completions (`POST /v1/chat/completions`), both roles. Sans-IO.

Source: the OpenAI API reference, "Chat Completions".
"""

from __future__ import annotations

from functools import cache, partial

from toolspeak.data.values import evolve
from toolspeak.wire.base import WireFormat
from toolspeak.wire.openai_chat.common import NAME
from toolspeak.wire.openai_chat.request_reader import decode_request
from toolspeak.wire.openai_chat.request_writer import encode_request
from toolspeak.wire.openai_chat.response_reader import ChunkDecoder, decode_response
from toolspeak.wire.openai_chat.response_writer import ChunkEncoder, encode_error, encode_response

OPENAI_CHAT = WireFormat(
    NAME, encode_request, decode_response, ChunkDecoder, decode_request, encode_response, ChunkEncoder, encode_error
)


@cache  # so that formats with the same deviations are equal
def openai_chat(*, keep_reasoning: bool = False, short_ids: bool = False) -> WireFormat:
    """`OPENAI_CHAT` with the deviations of a service.

    `keep_reasoning`: the API requires the reasoning of earlier turns. DeepSeek and Moonshot refuse calls without it;
    other APIs refuse it, or charge for it and ignore it.
    `short_ids`: ids of calls have nine letters or digits (Mistral).
    """
    return evolve(
        OPENAI_CHAT,
        encode_request=partial(encode_request, keep_reasoning=keep_reasoning, short_ids=short_ids),
        decode_response=partial(decode_response, keep_reasoning=keep_reasoning),
        decoder=partial(ChunkDecoder, keep_reasoning=keep_reasoning),
        settings={"keep_reasoning": keep_reasoning, "short_ids": short_ids},
    )
