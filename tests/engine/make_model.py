"""Makes a language model of half a million made-up weights that writes what a test wants: a GGUF file for llama.cpp.

    python make_model.py OUT.gguf

The engine around it is real: tokenizer, chat template, sampling, grammars, tool-call parser, wire format. Only what
the model has to say is laid down. A last user message with `#NAME` makes it write SCRIPTS[NAME]; one that begins with
`<`, as results in the text dialects do, and a last message of role `tool` make it write SCRIPTS["done"], so that the
loop of an agent ends. Anything else gets nonsense, and so does a script where a grammar forbids its next piece.

How: each script is cut into tokens that occur nowhere else, and the output layer maps each of them to the one behind
it. The chat template ends in the first.
"""

from __future__ import annotations

import itertools
import random
import sys
from pathlib import Path

import numpy as np
from gguf import GGUFWriter, LlamaFileType, TokenType

WIDTH, HEADS, HIDDEN_SIZE, CONTEXT = 256, 4, 256, 32768
START, END, PAD = "<|im_start|>", "<|im_end|>", "<|endoftext|>"
MARKERS = ("<tool_call>", "</tool_call>")

HERMES = '<tool_call>\n{"name": "%s", "arguments": %s}\n</tool_call>'
COGENCY = '<execute>\n[\n  {"name": "get_weather", "args": {"city": "Paris", "days": 3}}\n]\n</execute>'
CHATTER = "\n<results>\nIt rains, I guess. "

SCRIPTS: dict[str, str] = {
    "done": "It is 21 degrees in Paris.",
    "one": HERMES % ("get_weather", '{"city": "Paris", "days": 3}'),
    "two": HERMES % ("get_weather", '{"city": "Rome", "days": 1}') + "\n" + HERMES % ("get_time", '{"city": "Rome"}'),
    "text": "Let me look that up.\n" + HERMES % ("get_time", '{"city": "Lima"}'),
    "broken": HERMES % ("get_weather", '{"city": "Paris", "days": }'),
    "unknown": HERMES % ("no_such_tool", "{}"),
    "bytes": HERMES % ("get_weather", '{"city": "Zürich 東京 😀", "days": 2}'),
    "cut": '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Par',
    "answer": '{"city": "Paris", "days": 3}',
    "execute": COGENCY,
    "endless": COGENCY + CHATTER,
}
ENDLESS = {"endless": len(CHATTER)}
"""What is said again and again, until somebody stops it: so many bytes at the end of a script."""

# The Hermes convention, with which llama.cpp finds out how this model writes its calls.
TEMPLATE = """\
{%- if tools %}<|im_start|>system
{% if messages[0].role == 'system' %}{{ messages[0].content }}

{% endif %}Answer with <tool_call>{"name": ..., "arguments": {...}}</tool_call> to call one of these:
<tools>{% for tool in tools %}
{{ tool | tojson }}{% endfor %}
</tools><|im_end|>
{% endif %}
{%- for message in messages %}
{%- if message.role == 'tool' %}<|im_start|>user
<tool_response>
{{ message.content }}
</tool_response><|im_end|>
{% elif message.role != 'system' or not tools %}<|im_start|>{{ message.role }}
{{ message.content or '' }}
{%- for call in message.tool_calls or [] %}{% set function = call.function %}
<tool_call>
{"name": "{{ function.name }}", "arguments": {{ function.arguments if function.arguments is string \
else function.arguments | tojson }}}
</tool_call>
{%- endfor %}<|im_end|>
{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% set last = messages[-1] %}
{%- if last.role == 'tool' or (last.content is string and last.content[:1] == '<') %}<|done|>
{%- elif last.content is string and '#' in last.content %}<|{{ last.content.split('#')[-1] }}|>
{%- endif %}{% endif %}"""


def vocabulary_text(data: bytes) -> str:
    """Bytes as a byte-level BPE vocabulary writes them (GPT-2's table: what cannot be printed is moved to U+0100)."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = [byte for byte in range(256) if byte not in printable]
    return "".join(chr(byte) if byte in printable else chr(256 + others.index(byte)) for byte in data)


def pieces_of(data: bytes, used_tokens: set[str], chance: random.Random) -> list[str]:
    """The bytes cut into pieces that nobody has taken yet; characters of several bytes may be cut too."""
    for _ in range(10_000):
        pieces: list[str] = []
        at = 0
        while at < len(data):
            sizes = [size for size in range(2, 11) if at + size <= len(data)]
            free = [
                each
                for each in (vocabulary_text(data[at : at + size]) for size in sizes)
                if each not in {*used_tokens, *pieces}
            ]
            if not free:
                break
            pieces.append(chance.choice(free))
            at += len(pieces[-1])
        if at == len(data):
            used_tokens.update(pieces)
            return pieces
    raise SystemExit(f"{data!r} cannot be cut into pieces of its own: say it otherwise")


def chains(used_tokens: set[str]) -> tuple[list[list[str]], list[tuple[str, str]]]:
    """The tokens of each script, and the links of all: which token follows which."""
    chance = random.Random(0)
    token_chains: list[list[str]] = []
    links: list[tuple[str, str]] = []
    for name, text in SCRIPTS.items():
        text_bytes = text.encode()
        if name == "one":  # markers that are tokens, as many models have them; in the other scripts they are text
            begin, end = (len(marker) for marker in MARKERS)
            tokens = [MARKERS[0], *pieces_of(text_bytes[begin:-end], used_tokens, chance), MARKERS[1]]
        else:
            again = ENDLESS.get(name, 0)
            tail = pieces_of(text_bytes[len(text_bytes) - again :], used_tokens, chance) if again else []
            tokens = [*pieces_of(text_bytes[: len(text_bytes) - again], used_tokens, chance), *tail]
            if again:
                links.append((tail[-1], tail[0]))
        chain = [f"<|{name}|>", *tokens] if name in ENDLESS else [f"<|{name}|>", *tokens, END]
        links += itertools.pairwise(chain)
        token_chains.append(chain)
    return token_chains, links


def vocabulary() -> tuple[list[str], list[TokenType], list[str], list[tuple[str, str]]]:
    """Tokens, their types, the merges and the links."""
    letters = [vocabulary_text(bytes([byte])) for byte in range(256)]
    merges = ["t h", "i n", "e r", "o n", "a n", "r e", "Ġ t", "Ġ a"]
    control = [PAD, START, END]
    plain = [*letters, *(merge.replace(" ", "") for merge in merges)]
    token_chains, links = chains({*plain, *MARKERS})
    plain += [token for chain in token_chains for token in chain[1:] if token not in {*MARKERS, END}]
    control += [chain[0] for chain in token_chains]
    tokens = [*control, *MARKERS, *plain]
    kinds = [TokenType.CONTROL] * len(control) + [TokenType.USER_DEFINED] * 2 + [TokenType.NORMAL] * len(plain)
    return tokens, kinds, merges, links


def weights(tokens: list[str], links: list[tuple[str, str]]) -> dict[str, np.ndarray]:
    """One layer that hardly matters, between embeddings of length 1 and an output layer that knows the links.

    The last number of each embedding is the same everywhere, so that the output layer can favour what ends things: a
    model held to a grammar closes its texts and numbers, and nonsense comes to an end.
    """
    chance = np.random.default_rng(0)
    number = {token: i for i, token in enumerate(tokens)}

    def noise(rows: int, columns: int, size: float) -> np.ndarray:
        return chance.normal(0, size, (rows, columns)).astype(np.float32)

    embedding = noise(len(tokens), WIDTH, 1)
    embedding /= np.linalg.norm(embedding, axis=1, keepdims=True)
    embedding[:, -1] = 0.5
    output = noise(len(tokens), WIDTH, 0.1)
    # Behind the norm a hidden state is 16 long: a link weighs about 80, noise about 1.6, a favour 3 to 6.
    for token, following in links:
        output[number[following], :-1] += 6 * embedding[number[token], :-1]
    for token in [*'"}],<>)', vocabulary_text(b"\n")]:
        output[number[token], -1] += 0.8
    output[number[END], -1] += 0.4
    layer = {
        "attn_q": noise(WIDTH, WIDTH, 0.02),
        "attn_k": noise(WIDTH, WIDTH, 0.02),
        "attn_v": noise(WIDTH, WIDTH, 0.02),
        "attn_output": noise(WIDTH, WIDTH, 0.002),
        "ffn_gate": noise(HIDDEN_SIZE, WIDTH, 0.02),
        "ffn_up": noise(HIDDEN_SIZE, WIDTH, 0.02),
        "ffn_down": noise(WIDTH, HIDDEN_SIZE, 0.002),
        "attn_norm": np.ones(WIDTH, np.float32),
        "ffn_norm": np.ones(WIDTH, np.float32),
    }
    return {
        "token_embd.weight": embedding,
        "output.weight": output,
        "output_norm.weight": np.ones(WIDTH, np.float32),
        **{f"blk.0.{name}.weight": value for name, value in layer.items()},
    }


def write(path: Path) -> None:
    tokens, kinds, merges, links = vocabulary()
    writer = GGUFWriter(str(path), "llama")
    writer.add_name("toolspeak-tests")
    writer.add_file_type(LlamaFileType.ALL_F32)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(1)
    writer.add_feed_forward_length(HIDDEN_SIZE)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(tokens.index(PAD))
    writer.add_eos_token_id(tokens.index(END))
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)
    for name, value in weights(tokens, links).items():
        writer.add_tensor(name, np.ascontiguousarray(value))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    write(Path(sys.argv[1]))
