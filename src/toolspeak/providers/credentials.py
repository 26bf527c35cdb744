"""The address and the key of a model API."""

from __future__ import annotations

from collections.abc import Mapping

from toolspeak.errors import ConfigurationError, UnknownProvider


def address_and_key(
    model: str, base_url: str | None, api_key: str | None, *, keys: str, address: str, api: str, more: str = ""
) -> tuple[str, str]:
    """The base URL and the key of an API without white space around them; "" for None.

    For the message: `keys` and `address` name the environment variables that set them, `api` names the API, `more` is
    its end. Raises UnknownProvider without base URL and key, ConfigurationError for an invalid key.
    """
    url, key = (base_url or "").strip(), require_valid_key(api_key)
    if not url and not key:
        raise UnknownProvider(
            f"the model {model!r} needs a key or an address, and neither {keys} nor {address} is set. Set {keys}; or, "
            f"for your own server with {api}, set {address} to its address (no key needed).{more}"
        )
    return url, key


def require_valid_key(api_key: str | None) -> str:
    """The key without white space around it; empty for None. Raises ConfigurationError for an invalid key."""
    key = (api_key or "").strip()
    if not all("!" <= character <= "~" for character in key):
        raise ConfigurationError(
            "the API key holds white space or characters that are not ASCII; check that you copied only the key"
        )
    return key


def bearer(key: str) -> Mapping[str, str]:
    """The header for a key; no header for an empty key."""
    return {"authorization": f"Bearer {key}"} if key else {}
