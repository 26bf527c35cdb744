"""Writes the model of `make_model.py` as a folder that Transformers and vLLM load: weights, tokenizer, chat template.

python make_hf_model.py FOLDER
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from gguf import TokenType
from make_model import CONTEXT, END, HEADS, HIDDEN_SIZE, PAD, TEMPLATE, WIDTH, vocabulary, weights

NAMES = {
    "token_embd": "model.embed_tokens",
    "output": "lm_head",
    "output_norm": "model.norm",
    "attn_q": "model.layers.0.self_attn.q_proj",
    "attn_k": "model.layers.0.self_attn.k_proj",
    "attn_v": "model.layers.0.self_attn.v_proj",
    "attn_output": "model.layers.0.self_attn.o_proj",
    "ffn_gate": "model.layers.0.mlp.gate_proj",
    "ffn_up": "model.layers.0.mlp.up_proj",
    "ffn_down": "model.layers.0.mlp.down_proj",
    "attn_norm": "model.layers.0.input_layernorm",
    "ffn_norm": "model.layers.0.post_attention_layernorm",
}
"""GGUF's names of tensors, and Transformers'."""

BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}


def write(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    tokens, kinds, merges, links = vocabulary()
    write_tensors(folder / "model.safetensors", weights(tokens, links))
    end, pad = tokens.index(END), tokens.index(PAD)
    dump(
        folder / "config.json",
        architectures=["LlamaForCausalLM"],
        model_type="llama",
        hidden_size=WIDTH,
        intermediate_size=HIDDEN_SIZE,
        num_hidden_layers=1,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        vocab_size=len(tokens),
        max_position_embeddings=CONTEXT,
        rms_norm_eps=1e-6,
        rope_theta=10000.0,
        tie_word_embeddings=False,
        dtype="float32",
        bos_token_id=pad,
        eos_token_id=end,
    )
    dump(folder / "generation_config.json", bos_token_id=pad, eos_token_id=end)
    special_tokens = [
        {
            "id": i,
            "content": token,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": kinds[i] == TokenType.CONTROL,
        }
        for i, token in enumerate(tokens)
        if kinds[i] != TokenType.NORMAL
    ]
    dump(
        folder / "tokenizer.json",
        version="1.0",
        added_tokens=special_tokens,
        pre_tokenizer=BYTES,
        decoder=BYTES,
        # The tokens that are added too, for they would get other numbers.
        model={"type": "BPE", "vocab": {token: i for i, token in enumerate(tokens)}, "merges": merges},
    )
    dump(
        folder / "tokenizer_config.json",
        tokenizer_class="PreTrainedTokenizerFast",
        bos_token=PAD,
        eos_token=END,
        pad_token=PAD,
        clean_up_tokenization_spaces=False,
        model_max_length=CONTEXT,
        chat_template=TEMPLATE,
    )


def dump(path: Path, **values: Any) -> None:
    path.write_text(json.dumps(values), "utf-8")


def write_tensors(path: Path, tensors: dict[str, np.ndarray]) -> None:
    """The safetensors format (https://huggingface.co/docs/safetensors/index#format): the length of the header, 8
    bytes, the header as JSON, the numbers."""
    header: dict[str, Any] = {}
    at = 0
    for name, value in tensors.items():
        short = name.removesuffix(".weight").removeprefix("blk.0.")
        header[f"{NAMES[short]}.weight"] = {
            "dtype": "F32",
            "shape": list(value.shape),
            "data_offsets": [at, at + value.nbytes],
        }
        at += value.nbytes
    head = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(head).to_bytes(8, "little") + head)
        for value in tensors.values():
            file.write(np.ascontiguousarray(value).tobytes())


if __name__ == "__main__":
    write(Path(sys.argv[1]))
