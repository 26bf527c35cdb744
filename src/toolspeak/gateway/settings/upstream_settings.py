"""Upstreams: the addresses of models, and how the gateway asks them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from typing import Any, Literal, TypeAlias, cast, get_args

import httpx2

from toolspeak.data.messages import JSON
from toolspeak.dialects import Section, get_dialect
from toolspeak.dialects.base import PromptListing
from toolspeak.errors import ConfigurationError, suggest
from toolspeak.gateway.settings.config_tables import check_fields, checked_kind
from toolspeak.providers import PROVIDERS, Capabilities
from toolspeak.providers.http_settings import Timeouts
from toolspeak.providers.provider_failures import RETRIES

OWN_WAYS = ("auto", "native")
"""What `dialect` may say besides a dialect's name: see `agent.choose.choose_driver`."""

BalancingPolicy: TypeAlias = Literal["round_robin", "sticky"]
"""How the upstreams of one model share requests: in turn, or the same upstream for the same beginning."""


@dataclass(frozen=True, slots=True)
class Upstream:
    """Where the models of some names are served, and how the gateway asks them. Upstreams with equal `names` serve the
    same models, and share their requests by `policy`.

    - `names`: what clients call the models: exact names, or globs.
    - `provider`: a name of `providers.PROVIDERS`.
    - `url`: its address; empty is that of the environment or the provider.
    - `model`: the model's name there; empty is the client's.
    - `dialect`: a dialect's name, `auto` or `native`.
    - `starts_in`: where the model's replies start.
    - `key_variable`: the environment variable that holds the key.
    - `capabilities`: what the server can do; other fields stay as the provider's.
    - `retries`: how many more times a request is sent that failed before the upstream sent anything.
    - `options`: fields that go into every request, unless the client sets them.
    - `repair`: how many times the model is asked to rewrite a malformed call.
    - `hold_calls`: whether calls leave in one piece.
    - `listing`: who writes the prompt if calls are text, and how.
    - `defer_tools`: the most tools of a request of which the model reads the definitions. Of more it reads the names,
      and finds the definitions with `find_tools`, which the gateway runs. None: it reads all definitions.
    """

    names: tuple[str, ...] = ("*",)
    provider: str = "openai"
    url: str = ""
    model: str = ""
    dialect: str = "auto"
    starts_in: Section = "text"
    key_variable: str = ""
    capabilities: Mapping[str, JSON] = field(default_factory=dict[str, JSON])
    timeouts: Timeouts = Timeouts()
    retries: int = RETRIES
    options: Mapping[str, JSON] = field(default_factory=dict[str, JSON])
    repair: int = 0
    hold_calls: bool = False
    listing: PromptListing | None = None
    policy: BalancingPolicy = "round_robin"
    defer_tools: int | None = None

    @property
    def exact(self) -> tuple[str, ...]:
        """The names that are not globs."""
        return tuple(name for name in self.names if not any(mark in name for mark in "*?["))

    def serves(self, model: str) -> bool:
        return any(fnmatchcase(model, name) for name in self.names)


def labels_of(upstreams: Sequence[Upstream]) -> tuple[str, ...]:
    """The names of a model's upstreams in logs and metrics: host and port, or the provider. Equal names get a
    number."""
    hosts = [httpx2.URL(each.url).netloc.decode() if each.url else each.provider for each in upstreams]
    numbers, labels = Counter[str](), list[str]()
    for host in hosts:
        numbers[host] += 1
        labels.append(f"{host}#{numbers[host]}" if hosts.count(host) > 1 else host)
    return tuple(labels)


def upstream_of(target: str, **rest: Any) -> Upstream:
    """The upstream that `--upstream` names: an address, `provider`, or `provider:model`. Raises ConfigurationError."""
    if target.startswith(("http://", "https://")):
        if "url" in rest:
            raise ConfigurationError(f"{target!r} is an address, and url is another one; set only one of them")
        return Upstream(url=target, **rest)
    provider, _, model = target.partition(":")
    if provider not in PROVIDERS:
        raise ConfigurationError(
            f"the upstream {target!r} is neither an address (http://127.0.0.1:11434/v1) nor begins with a provider: "
            f"{suggest(provider, PROVIDERS)}"
        )
    for name, value in (("provider", provider), ("model", model)):
        if value and rest.get(name, value) != value:
            raise ConfigurationError(
                f"{target!r} names the {name} {value!r}, but {name} is {rest[name]!r}; set only one of them"
            )
    values: dict[str, Any] = {"model": model, **rest, "provider": provider}
    return Upstream(**values)


_FIELD_OF_KEY = {"name": "names", "key_env": "key_variable"}
_UPSTREAM_FIELDS = {each.name for each in fields(Upstream)} - {"names", "key_variable"} | {*_FIELD_OF_KEY, "upstream"}


def upstreams_of_table(row: Any, place: str) -> tuple[Upstream, ...]:
    """The upstreams of a table `[[model]]`: the one it names, or those in its list `upstreams`, which share its other
    fields. Raises ConfigurationError naming the key."""
    if not isinstance(row, dict):
        raise ConfigurationError(f"{place}: expected a table [[model]]")
    table = cast("dict[str, Any]", row)
    check_fields(table, {*_UPSTREAM_FIELDS, "upstreams"}, place)
    if "upstreams" not in table:
        return (_upstream_of_table(table, place, {}, place),)
    if "upstream" in table:
        raise ConfigurationError(f"{place}: set upstream (one) or upstreams (several), not both")
    rows: Any = table["upstreams"]
    if not isinstance(rows, list) or not rows:
        raise ConfigurationError(
            f"{place}.upstreams: write a list of addresses, or a table [[model.upstreams]] for each"
        )
    shared_fields = {name: value for name, value in table.items() if name != "upstreams"}
    if not shared_fields.get("name"):
        raise ConfigurationError(f"{place}.name: missing; write the name that clients ask for, or a glob")
    upstreams: list[Upstream] = []
    for i, each in enumerate(cast("list[Any]", rows)):
        at = f"{place}.upstreams[{i}]"
        own: Any = {"upstream": each} if isinstance(each, str) else each
        if not isinstance(own, dict):
            raise ConfigurationError(f"{at}: expected an address, or a table with upstream and what else is its own")
        check_fields(cast("dict[str, Any]", own), _UPSTREAM_FIELDS - {"name", "policy", "defer_tools"}, at)
        upstreams.append(_upstream_of_table(cast("dict[str, Any]", own), at, shared_fields, place))
    return tuple(upstreams)


def _upstream_of_table(
    own: Mapping[str, Any], place: str, shared_fields: Mapping[str, Any], shared_place: str
) -> Upstream:
    """The upstream of a table, with the shared fields that it does not set. An error names the place of the table that
    holds the field."""

    def place_of(name: str) -> str:
        return f"{shared_place if name in shared_fields and name not in own else place}.{name}"

    table = {**shared_fields, **own}
    kinds = {each.name: str(each.type) for each in fields(Upstream)}
    values: dict[str, Any] = {}
    for name, value in table.items():
        at = place_of(name)
        match name:
            case "name":
                names = cast("list[Any]", value if isinstance(value, list) else [value])
                values["names"] = tuple(checked_kind(each, "str", at) for each in names)
            case "timeouts":
                values[name] = _timeouts(value, at)
            case "capabilities":
                values[name] = _capabilities(value, at)
            case "options":
                if not isinstance(value, dict):
                    raise ConfigurationError(f"{at}: expected a table of fields that go into every request")
                values[name] = cast("dict[str, JSON]", value)
            case "upstream":
                pass
            case _:
                values[_FIELD_OF_KEY.get(name, name)] = checked_kind(value, kinds[_FIELD_OF_KEY.get(name, name)], at)
    if not values.get("names"):
        raise ConfigurationError(f"{place}.name: missing; write the name that clients ask for, or a glob")
    target = table.get("upstream")
    if target is not None:
        target = checked_kind(target, "str", f"{place}.upstream")
        try:
            upstream = upstream_of(target, **values)
        except ConfigurationError as error:
            raise ConfigurationError(f"{place}.upstream: {error}") from None
        return checked_upstream(upstream, place_of)
    if not values.get("url") and not values.get("provider"):
        raise ConfigurationError(f"{place}.upstream: missing; write an address, a provider or provider:model")
    return checked_upstream(Upstream(**values), place_of)


def checked_upstream(upstream: Upstream, place_of: Callable[[str], str] = str) -> Upstream:
    """The upstream, if it is valid. `place_of` gives the name of a field in errors. Raises ConfigurationError."""
    if upstream.provider not in PROVIDERS:
        raise ConfigurationError(f"{place_of('provider')}: there is no {suggest(upstream.provider, PROVIDERS)}")
    if upstream.dialect not in OWN_WAYS:
        try:
            get_dialect(upstream.dialect)
        except ConfigurationError as error:
            raise ConfigurationError(f"{place_of('dialect')}: {error} Besides them: {', '.join(OWN_WAYS)}.") from None
    if upstream.policy not in get_args(BalancingPolicy):
        policies = suggest(upstream.policy, get_args(BalancingPolicy))
        raise ConfigurationError(f"{place_of('policy')}: there is no {policies}")
    if upstream.starts_in not in ("text", "reasoning"):
        raise ConfigurationError(f"{place_of('starts_in')}: expected text or reasoning, found {upstream.starts_in!r}")
    if upstream.listing is not None and upstream.listing not in get_args(PromptListing):
        raise ConfigurationError(
            f"{place_of('listing')}: there is no {suggest(upstream.listing, get_args(PromptListing))}"
        )
    if not 0 <= upstream.repair <= 3:
        raise ConfigurationError(f"{place_of('repair')}: expected 0 (never) to 3, found {upstream.repair}")
    return upstream


def _timeouts(value: Any, place: str) -> Timeouts:
    if not isinstance(value, dict):
        raise ConfigurationError(f"{place}: expected a table with connect, first_byte and silence, in seconds")
    table = cast("dict[str, Any]", value)
    check_fields(table, {each.name for each in fields(Timeouts)}, place)
    for name, seconds in table.items():
        checked_kind(seconds, "float", f"{place}.{name}")
    return Timeouts(**table)


def _capabilities(value: Any, place: str) -> Mapping[str, JSON]:
    if not isinstance(value, dict):
        raise ConfigurationError(f"{place}: expected a table, for instance {{ grammar = 'gbnf', tools = true }}")
    table = cast("dict[str, Any]", value)
    check_fields(table, {each.name for each in fields(Capabilities)}, place)
    for name, each in table.items():
        if name == "grammar":
            if each not in ("gbnf", "xgrammar"):
                raise ConfigurationError(
                    f"{place}.grammar: expected gbnf (llama.cpp) or xgrammar (vLLM, SGLang), found {each!r}"
                )
        else:
            checked_kind(each, "int" if name == "context" else "bool", f"{place}.{name}")
    return table
