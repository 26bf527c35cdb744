"""What both roles of Ollama's chat API share. Sans-IO."""

from __future__ import annotations

NAME = "ollama"

RUNTIME_OPTIONS = frozenset(
    {
        "numa", "num_ctx", "num_batch", "num_gpu", "main_gpu", "low_vram", "f16_kv", "logits_all", "vocab_only",
        "use_mmap", "use_mlock", "embedding_only", "num_thread", "num_keep", "seed", "num_predict", "top_k", "top_p",
        "min_p", "tfs_z", "typical_p", "repeat_last_n", "temperature", "repeat_penalty", "presence_penalty",
        "frequency_penalty", "mirostat", "mirostat_tau", "mirostat_eta", "penalize_newline", "stop",
    }
)  # fmt: skip
"""Options inside the body's `options`; others (`think`, `keep_alive`, `truncate`, …) are fields of the body."""
