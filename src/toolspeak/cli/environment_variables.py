"""Every environment variable that toolspeak or a library of it reads, for `toolspeak --help`."""

from __future__ import annotations

VARIABLES: dict[str, str] = {
    "TOOLSPEAK_CONFIG": "your configuration file, instead of the one in your configuration folder",
    "TOOLSPEAK_MODEL": "the model of run, chat and acp (--model)",
    "TOOLSPEAK_JOURNAL": "where runs are recorded (--journal)",
    "TOOLSPEAK_ENGINE": "the engine of workers (--engine)",
    "TOOLSPEAK_SANDBOX": "required, auto or off, if neither --sandbox nor your configuration sets it",
    "TOOLSPEAK_LOG": "a file for the log: retried requests, tracebacks of tools that crash",
    "TOOLSPEAK_TELEMETRY": "1 exports traces and metrics (--telemetry)",
    "TOOLSPEAK_API_KEYS": "keys of the gateway's clients, separated by commas",
    "OPENAI_API_KEY, OPENAI_BASE_URL": "key and address of openai: and openai-responses:",
    "ANTHROPIC_API_KEY, ANTHROPIC_BASE_URL": "key and address of anthropic:",
    "GEMINI_API_KEY, GOOGLE_API_KEY, GEMINI_BASE_URL": "key (the first one that is set) and address of gemini:",
    "OLLAMA_HOST, OLLAMA_API_KEY": "address of ollama:, and the key for ollama.com",
    "OPENROUTER_API_KEY, OPENROUTER_BASE_URL": "key and address of openrouter:",
    "GROQ_API_KEY, GROQ_BASE_URL": "key and address of groq:",
    "MISTRAL_API_KEY, MISTRAL_BASE_URL": "key and address of mistral:",
    "DEEPSEEK_API_KEY, DEEPSEEK_BASE_URL": "key and address of deepseek:",
    "TOGETHER_API_KEY, TOGETHER_BASE_URL": "key and address of together:",
    "VLLM_API_KEY, VLLM_BASE_URL": "key and address of vllm:",
    "SGLANG_API_KEY, SGLANG_BASE_URL": "key and address of sglang:",
    "LLAMA_API_KEY, LLAMACPP_BASE_URL": "key and address of llamacpp:",
    "LM_API_TOKEN, LMSTUDIO_BASE_URL": "key and address of lmstudio:",
    "BRAVE_API_KEY": "the key of --search brave",
    "HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, NO_PROXY": "proxies for model servers; this machine is reached without one",
    "SSL_CERT_FILE, SSL_CERT_DIR": "the CAs to trust instead of the system's",
    "VISUAL, EDITOR": "your editor, for arguments and for `toolspeak config edit`",
    "NO_COLOR, FORCE_COLOR, TERM, COLUMNS, LINES": "how the terminal shows colours, and its size where it is unknown",
    "XDG_CONFIG_HOME, XDG_DATA_HOME, HOME": "where your configuration and your journal are",
    "PATH, USER, LOGNAME, SHELL, LANG, LANGUAGE, LC_*, TZ, TMPDIR": "commands get these too; --env adds others",
    "OTEL_TRACES_EXPORTER, OTEL_METRICS_EXPORTER": "with --telemetry: otlp (the default), or none",
    "OTEL_EXPORTER_OTLP_PROTOCOL, OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "with --telemetry: http/protobuf; its exporter "
    "reads its other variables OTEL_* too",
    "OTEL_METRIC_EXPORT_INTERVAL": "with --telemetry: milliseconds between two exports of metrics",
    "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "with --telemetry: true puts the messages' content on spans",
    "PROMETHEUS_MULTIPROC_DIR": "a folder that the gateway's processes share for metrics; it makes one of its own",
}
"""Names, separated by commas, and what they are for."""
