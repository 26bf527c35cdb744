"""The web view over HTTP on the loopback interface, with a client that is logged in."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx2
import jsonschema_rs
import uvicorn

from toolspeak.journal.base import Journal
from toolspeak.web_ui.access import Access, UiKey
from toolspeak.web_ui.api_operations import OPERATIONS, ROOT, description
from toolspeak.web_ui.gateway_values import GatewayWatch
from toolspeak.web_ui.web_app import web_app
from uvicorn_here import serving

SECRET = b"s" * 32
DESCRIPTION = description()
NO_LIMITS = httpx2.Limits(max_connections=None)


@dataclass
class View:
    """The address of a web view, and a client with the cookie of whoever opened the printed address."""

    port: int
    client: httpx2.AsyncClient
    access: Access

    async def get(self, path: str, status: int = 200, /, **query):
        return check_answer("GET", path, status, await self.client.get(ROOT + path, params=query))

    async def post(self, path: str, status: int = 200, /, **body):
        return check_answer("POST", path, status, await self.client.post(ROOT + path, json=body))


def check_answer(method: str, path: str, status: int, response: httpx2.Response):
    """The body of an answer, which has the schema that the description says."""
    assert response.status_code == status, (response.status_code, response.text)
    operation = DESCRIPTION["paths"][template_of(path)][method.lower()]
    answer = operation["responses"]["200" if status < 300 else "default"]
    content = answer["content"]["application/json"]["schema"]
    schema = {**content, "components": DESCRIPTION["components"]}
    body = json.loads(response.content)
    jsonschema_rs.validator_for(schema).validate(body)
    return body


def template_of(path: str) -> str:
    """The path of the description that a path is an instance of."""
    parts = path.split("/")
    for each in OPERATIONS:
        names = each.path.split("/")
        if len(names) == len(parts) and all(
            name.startswith("{") or name == part for name, part in zip(names, parts, strict=True)
        ):
            return ROOT + each.path
    raise AssertionError(f"no operation has the path {path}")


@asynccontextmanager
async def viewing(
    journal: Journal | None,
    *,
    keys: tuple[UiKey, ...] | None = None,
    port: int = 0,
    login: str | None = None,
    gateway: GatewayWatch | None = None,
    **options,
) -> AsyncGenerator[View]:
    """A web view of a journal. `login`: what logs the client in; None: the token."""
    access = Access(keys=keys, user="ann", secret=SECRET, **options)
    app = web_app(journal, access, gateway=gateway)
    config = uvicorn.Config(app, ws="none", lifespan="on", log_config=None, access_log=False)
    async with (
        serving(config, port) as (_, bound),
        httpx2.AsyncClient(base_url=f"http://127.0.0.1:{bound}", timeout=60, limits=NO_LIMITS) as client,
    ):
        if login != "":
            secret = access.token if login is None else login
            me = check_answer("POST", "/session", 200, await client.post(f"{ROOT}/session", json={"secret": secret}))
            client.headers["x-csrf-token"] = me["csrf"]
        try:
            yield View(bound, client, access)
        finally:
            await app.state.services.live.aclose()
            if gateway is not None:
                gateway.close_streams()


async def events_of(lines: AsyncGenerator[str]) -> AsyncGenerator[tuple[str, str, dict]]:
    """The server-sent events in lines: name, id, data."""
    name, number, data = "message", "", ""
    async for line in lines:
        field, _, value = line.partition(": ")
        if not line:
            if data:
                yield name, number, json.loads(data)
            name, data = "message", ""
        elif field == "event":
            name = value
        elif field == "id":
            number = value
        elif field == "data":
            data += value
