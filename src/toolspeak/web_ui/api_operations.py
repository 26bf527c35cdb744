"""The operations of the API, each once: its route, who may use it, its values. The OpenAPI description follows from
them."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from toolspeak.agent.charts.run_chart import RunChart
from toolspeak.version import __version__
from toolspeak.web_ui import gateway_views, reply_readings, run_actions, run_comparison, run_views, turn_views
from toolspeak.web_ui.api_errors import ErrorBody
from toolspeak.web_ui.api_values import (
    Acceptance,
    ComparisonQuery,
    DecisionBody,
    DecisionMade,
    ForkBody,
    Me,
    MessageBody,
    MessageSent,
    MessagesPage,
    PageQuery,
    RecordsPage,
    RunComparison,
    RunDetail,
    RunsPage,
    RunsQuery,
    SearchMatches,
    SearchQuery,
    Secret,
    SessionItem,
    SessionsPage,
    SessionsQuery,
    SubmitBody,
    Suspension,
    TextPiece,
    TextQuery,
    UiRole,
)
from toolspeak.web_ui.gateway_values import GatewayStatus
from toolspeak.web_ui.reply_readings import ReadingBody, ReplyReadings
from toolspeak.web_ui.run_views import ApiCall
from toolspeak.web_ui.turn_views import SentBody, TurnReading

ROOT = "/api/v1"

_NAMES = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation of the API.

    - `path`: after `ROOT`, with names in braces.
    - `does`: what it does, in a sentence.
    - `handler`: does it; None for those about the caller, which the application answers itself.
    - `role`: what the caller needs; None: nothing, not even to be known.
    - `answer`: the type of the answer, or a content type.
    - `query`, `body`: the types of the request.
    """

    method: Literal["GET", "POST", "DELETE"]
    path: str
    name: str
    does: str
    handler: Callable[[ApiCall], Awaitable[Any]] | None
    role: UiRole | None
    answer: Any
    query: Any = None
    body: Any = None

    @property
    def is_about_runs(self) -> bool:
        """Whether it needs a journal."""
        return self.path.startswith(("/runs", "/sessions", "/search"))


OPERATIONS: Sequence[Operation] = (
    Operation("POST", "/session", "login", "Logs a browser in: sets its cookie.", None, None, Me, body=Secret),
    Operation("GET", "/session", "me", "Says who the caller is.", None, "look", Me),
    Operation("DELETE", "/session", "logout", "Logs the browser out.", None, "look", None),
    Operation("GET", "/openapi.json", "openapi", "This description.", None, "look", "application/json"),
    Operation(
        "GET",
        "/gateway",
        "gateway",
        "Says how the gateway stands: upstreams, streams, latency, calls, keys. 404 if the server shows none.",
        gateway_views.show_gateway,
        "look",
        GatewayStatus,
    ),
    Operation(
        "GET",
        "/gateway/events",
        "gatewayEvents",
        "Streams how the gateway stands as server-sent events: `gateway` (a GatewayStatus), every two seconds.",
        gateway_views.gateway_events,
        "look",
        "text/event-stream",
    ),
    Operation("GET", "/runs", "listRuns", "Lists runs.", run_views.list_runs, "look", RunsPage, RunsQuery),
    Operation(
        "POST",
        "/runs",
        "submit",
        "Starts a run for a worker that has the agent.",
        run_actions.submit,
        "run",
        Acceptance,
        body=SubmitBody,
    ),
    Operation(
        "GET",
        "/sessions",
        "listSessions",
        "Lists sessions.",
        run_views.list_sessions,
        "look",
        SessionsPage,
        SessionsQuery,
    ),
    Operation(
        "GET",
        "/sessions/{session_id}",
        "oneSession",
        "Says how a session stands.",
        run_views.one_session,
        "look",
        SessionItem,
    ),
    Operation(
        "GET",
        "/search",
        "search",
        "Finds texts of runs by their words.",
        run_views.search,
        "look",
        SearchMatches,
        SearchQuery,
    ),
    Operation(
        "POST",
        "/readings",
        "readReply",
        "Reads a reply of a model as dialects do. It stores nothing.",
        reply_readings.read_reply,
        "look",
        ReplyReadings,
        body=ReadingBody,
    ),
    Operation("GET", "/runs/{run_id}", "oneRun", "Says how a run stands.", run_views.one_run, "look", RunDetail),
    Operation(
        "GET",
        "/runs/{run_id}/records",
        "records",
        "Reads records in order. A page may be shorter than `limit`.",
        run_views.run_records,
        "look",
        RecordsPage,
        PageQuery,
    ),
    Operation(
        "GET",
        "/runs/{run_id}/records/{seq}/text",
        "text",
        "Reads a part of a text that a record has only the beginning of.",
        run_views.record_text,
        "look",
        TextPiece,
        TextQuery,
    ),
    Operation(
        "GET",
        "/runs/{run_id}/records/{seq}/image",
        "image",
        "Reads an image of a record.",
        run_views.record_image,
        "look",
        "image/*",
        TextQuery,
    ),
    Operation(
        "GET",
        "/runs/{run_id}/records/{seq}/messages",
        "stepMessages",
        "Reads the messages that the model read at the step whose ModelAsked the record is.",
        run_views.step_messages,
        "look",
        MessagesPage,
        PageQuery,
    ),
    Operation(
        "GET",
        "/runs/{run_id}/records/{seq}/request",
        "turnRequest",
        "Reads a part of the body of the request whose ModelAsked the record is, made again of the records.",
        turn_views.turn_request,
        "look",
        SentBody,
        TextQuery,
    ),
    Operation(
        "GET",
        "/runs/{run_id}/records/{seq}/reading",
        "turnReading",
        "Reads what the model wrote in the turn whose ModelAsked the record is, and what the parser made of it.",
        turn_views.turn_reading,
        "look",
        TurnReading,
    ),
    Operation(
        "GET",
        "/runs/{run_id}/timeline",
        "timeline",
        "Lays the run out over time.",
        run_views.run_timeline,
        "look",
        RunChart,
    ),
    Operation(
        "GET",
        "/runs/{run_id}/comparison",
        "compare",
        "Says where the run and another one part, without times, tokens and ids.",
        run_comparison.compare_runs,
        "look",
        RunComparison,
        ComparisonQuery,
    ),
    Operation(
        "GET",
        "/runs/{run_id}/events",
        "events",
        "Streams the run as server-sent events: `record` (a RecordItem, its id is the record's number), `deltas`"
        " (pieces of the turn under way: `after` is the number of the record before them), `live` (all records until"
        " now were sent; of a turn that began before, deltas may be missing) and `end`. With `Last-Event-ID` it goes on"
        " after that record; 204: there is nothing more to come.",
        run_views.run_events,
        "look",
        "text/event-stream",
        PageQuery,
    ),
    Operation(
        "POST",
        "/runs/{run_id}/decisions",
        "decide",
        "Decides about a call. 409 if another decision was first, or the question is another one by now.",
        run_actions.decide,
        "approve",
        DecisionMade,
        body=DecisionBody,
    ),
    Operation(
        "POST",
        "/runs/{run_id}/messages",
        "say",
        "Sends a message to a run, which reads it at its next step.",
        run_actions.say,
        "run",
        MessageSent,
        body=MessageBody,
    ),
    Operation(
        "POST",
        "/runs/{run_id}/suspension",
        "suspend",
        "Suspends a run: its current turn and calls come to their end.",
        run_actions.suspend,
        "run",
        Suspension,
    ),
    Operation(
        "POST",
        "/runs/{run_id}/resumption",
        "resume",
        "Lets a worker go on with a suspended run.",
        run_actions.resume,
        "run",
        Acceptance,
    ),
    Operation(
        "POST",
        "/runs/{run_id}/forks",
        "fork",
        "Starts a run that continues the conversation as it was at a record.",
        run_actions.fork,
        "run",
        Acceptance,
        body=ForkBody,
    ),
)


def description() -> dict[str, Any]:
    """The OpenAPI 3.1 description of the API."""
    types = {each: None for one in OPERATIONS for each in (one.answer, one.body) if isinstance(each, type)}
    _, schemas = msgspec.json.schema_components((*types, ErrorBody), ref_template="#/components/schemas/{name}")
    paths: dict[str, dict[str, Any]] = {}
    for one in OPERATIONS:
        paths.setdefault(ROOT + one.path, {})[one.method.lower()] = _operation(one)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "toolspeak",
            "version": __version__,
            "description": "Runs of a journal. Times are Unix seconds. Records are described in toolspeak's reference.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer"},
                "cookie": {
                    "type": "apiKey",
                    "in": "header",
                    "name": "x-csrf-token",
                    "description": "With the cookie of POST /session: its answer's `csrf`.",
                },
            },
        },
    }


def _operation(one: Operation) -> dict[str, Any]:
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _NAMES.findall(one.path)
    ]
    if one.query is not None:
        ((schema,), components) = msgspec.json.schema_components((one.query,), ref_template="#/{name}")
        fields: Mapping[str, Any] = components[schema["$ref"].removeprefix("#/")]
        required_names = fields.get("required", ())
        parameters += [
            {"name": name, "in": "query", "required": name in required_names, "schema": each}
            for name, each in fields["properties"].items()
        ]
    answer: dict[str, Any] = {"description": one.does}
    if one.answer is not None:
        kind = one.answer if isinstance(one.answer, str) else "application/json"
        answer["content"] = {kind: {"schema": {} if isinstance(one.answer, str) else _reference(one.answer)}}
    operation: dict[str, Any] = {
        "operationId": one.name,
        "summary": one.does,
        "responses": {
            "204" if one.answer is None else "200": answer,
            "default": {"description": "An error.", "content": {"application/json": {"schema": _reference(ErrorBody)}}},
        },
        "security": [] if one.role is None else [{"key": []}, {"cookie": []}],
    }
    if one.role is not None:
        operation["x-role"] = one.role
    if parameters:
        operation["parameters"] = parameters
    if one.body is not None:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": _reference(one.body)}}}
    return operation


def _reference(kind: type) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{kind.__name__}"}
