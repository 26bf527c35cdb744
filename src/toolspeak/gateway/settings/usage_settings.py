"""The table `[usage]` of the gateway's configuration."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, cast

from platformdirs import user_data_path

from toolspeak.errors import ConfigurationError
from toolspeak.gateway.settings.api_keys import Key
from toolspeak.gateway.settings.config_tables import check_fields, checked_kind


@dataclass(frozen=True, slots=True)
class UsageSettings:
    """Where usage is counted: `store` is the path of a SQLite file, a `sqlite://` or a `postgresql://` URL. It is kept
    for `retention_days`. After `lease_seconds` the answers of a worker that was killed are no longer under way."""

    store: str
    retention_days: int = 90
    lease_seconds: float = 15.0


def default_store() -> str:
    """A file in the user's data folder."""
    return str(user_data_path("toolspeak", appauthor=False) / "gateway-usage.db")


def usage_of_table(value: Any, folder: Path) -> UsageSettings:
    """`[usage]`; a relative path is seen from `folder`. Raises ConfigurationError naming the place."""
    if not isinstance(value, dict):
        raise ConfigurationError("usage: expected a table [usage]")
    table = cast("dict[str, Any]", value)
    kinds = {each.name: str(each.type) for each in fields(UsageSettings)}
    check_fields(table, {*kinds}, "usage")
    values = {name: checked_kind(field, kinds[name], f"usage.{name}") for name, field in table.items()}
    if not values.setdefault("store", default_store()):
        raise ConfigurationError("usage.store: empty; write the path of a file, or a postgresql:// URL")
    if "://" not in values["store"]:
        values["store"] = str(folder / Path(values["store"]).expanduser())
    settings = UsageSettings(**values)
    if not 1 <= settings.retention_days <= 36500:
        raise ConfigurationError(f"usage.retention_days: expected 1 to 36500 days, found {settings.retention_days}")
    if not 5 <= settings.lease_seconds <= 3600:
        raise ConfigurationError(f"usage.lease_seconds: expected 5 to 3600 seconds, found {settings.lease_seconds}")
    return settings


def usage_for(usage: UsageSettings | None, keys: Iterable[Key]) -> UsageSettings | None:
    """The settings in use: usage is counted if that is configured, or if a key has limits."""
    if usage is None and any(key.limited for key in keys):
        return UsageSettings(default_store())
    return usage
