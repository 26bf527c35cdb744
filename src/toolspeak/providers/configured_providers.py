"""Providers with a name, an address and a key of the user's own."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from toolspeak.data.messages import JSON, no_extra
from toolspeak.data.values import quick
from toolspeak.errors import ConfigurationError, UnknownProvider, suggest
from toolspeak.providers.base import Provider
from toolspeak.providers.model_strings import PROVIDERS, provider_of_api

API_NAMES = tuple(name for name in PROVIDERS if name != "scripted")
"""The APIs and kinds of servers that a user's own provider may speak."""

_VARIABLES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "anthropic": ("ANTHROPIC_BASE_URL", ("ANTHROPIC_API_KEY",)),
    "gemini": ("GEMINI_BASE_URL", ("GEMINI_API_KEY", "GOOGLE_API_KEY")),
    "ollama": ("OLLAMA_HOST", ("OLLAMA_API_KEY",)),
    "openai": ("OPENAI_BASE_URL", ("OPENAI_API_KEY",)),
    "openai-responses": ("OPENAI_BASE_URL", ("OPENAI_API_KEY",)),
}

_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def variables_of(api: str) -> tuple[str, tuple[str, ...]]:
    """The environment variables of the address of an API (of `API_NAMES`) and of its key: the first one that is set
    counts."""
    if api in _VARIABLES:
        return _VARIABLES[api]
    # Not at the top: it imports the transport, and a run may use another one, or none.
    service = importlib.import_module("toolspeak.providers.compatible").COMPATIBLE[api]
    return service.url_variable, (service.key_variable,)


def environment_for(
    api: str, base_url: str, key_variable: str, environ: Mapping[str, str], what: str
) -> Mapping[str, str]:
    """The environment for a provider of this API (of `API_NAMES`) at an address of the user's own. Empty names
    change nothing.

    The address gets only the key that `key_variable` names. `what` names the provider in the error. Raises
    UnknownProvider if `key_variable` is not set.
    """
    url, keys = variables_of(api)
    variables = dict(environ)
    if base_url or key_variable:
        for key in keys:
            variables.pop(key, None)
    if base_url:
        variables[url] = base_url
    if key_variable:
        value = environ.get(key_variable, "").strip()
        if not value:
            raise UnknownProvider(f"{what}: the variable {key_variable} is not set")
        variables[keys[0]] = value
    return variables


@quick()
class ConfiguredProvider:
    """A provider that a configuration names: `NAME:MODEL` is a model there.

    - `api`: the API that it speaks, or the kind of server: one of `API_NAMES`.
    - `base_url`: its address; empty is the API's own.
    - `key_env`: the environment variable that holds its key. An address gets no other key.
    - `headers`: sent with every request. `${NAME}` in a value is an environment variable.
    - `options`: fields of every request's body.
    - `ca_file`: a PEM file of the CAs to trust.
    """

    api: str
    base_url: str = ""
    key_env: str = ""
    headers: Mapping[str, str] = field(default_factory=no_extra)
    options: Mapping[str, JSON] = field(default_factory=no_extra)
    ca_file: str = ""

    def provider(self, name: str, model: str, environ: Mapping[str, str], **settings: Any) -> Provider:
        """The provider of a model, called `name:model`. `settings` replace its own, except that `options` are merged.

        Raises UnknownProvider for an API that does not exist, and for a variable that is not set.
        """
        if self.api not in API_NAMES:
            raise UnknownProvider(f"the provider {name!r}: there is no API {suggest(self.api, API_NAMES)}")
        what = f"the key of the provider {name!r}"
        variables = environment_for(self.api, self.base_url, self.key_env, environ, what)
        own: dict[str, Any] = {**settings, "options": {**self.options, **(settings.get("options") or {})}}
        if self.headers:
            own.setdefault("extra_headers", self._filled_headers(name, environ))
        if self.ca_file:
            own.setdefault("ca_file", self.ca_file)
        provider: Any = provider_of_api(self.api, model, variables, **own)
        return provider.with_name(name)  # an ApiProvider, as all of `API_NAMES` are

    def _filled_headers(self, name: str, environ: Mapping[str, str]) -> Mapping[str, str]:
        def value_of(match: re.Match[str]) -> str:
            value = environ.get(match[1], "").strip()
            if not value:
                raise ConfigurationError(f"a header of the provider {name!r}: the variable {match[1]} is not set")
            return value

        return {header: _REFERENCE.sub(value_of, text) for header, text in self.headers.items()}
