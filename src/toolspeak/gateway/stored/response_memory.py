"""Stored responses, which clients name by id, and responses in the background. Off unless configured."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, cast

from toolspeak.data.messages import JSON
from toolspeak.data.values import quick
from toolspeak.errors import ConfigurationError, FormatError, JournalError
from toolspeak.gateway.http.error_responses import Failure
from toolspeak.gateway.observability import log
from toolspeak.gateway.settings.gateway_settings import ResponseSettings
from toolspeak.gateway.stored.response_store import ResponseStore, Retention, StoredResponse, open_store
from toolspeak.gateway.turns.turn_gate import Note
from toolspeak.wire.json_conversion import describe, optional_flag, require_object, require_text

PATH = "/v1/responses/"
"""The path of a stored response, up to its id."""

_CONTINUABLE = ("completed", "incomplete")
_OVER = (*_CONTINUABLE, "failed", "cancelled")
_BEAT_SECONDS = 2.0
_SAVE_SECONDS = (0.5, 2.0, 5.0, 10.0)
"""Seconds before each retry to store the end of a background response."""

_MOST_LISTED = 100
_PREFIXES = {"function_call_output": "fco", "function_call": "fc", "reasoning": "rs", "message": "msg"}
_NOT_KEPT = Note(
    "response_not_stored",
    "the response is not stored, so no later request can name it: send the conversation as 'input'",
)


@quick()
class ResponseStorage:
    """How to store the response to a request. `items`: the request's own input. `store`: whether to store it."""

    response_id: str
    owner: str
    previous: str | None
    items: Sequence[JSON]
    store: bool
    background: bool = False

    @property
    def storage_fields(self) -> Mapping[str, JSON]:
        """The fields of the response about its storage."""
        return {"store": self.store, "previous_response_id": self.previous, "background": self.background}


class ResponseMemory:
    """The responses that clients may name. If the database fails, an answer still leaves, with the warning
    `response_not_stored`."""

    def __init__(self, settings: ResponseSettings) -> None:
        self.settings = settings
        self.runs: dict[str, asyncio.Task[None]] = {}
        """The background tasks of this process, by the id of the response."""
        self._store: ResponseStore = open_store(settings.store, settings.seconds)
        self._retention = Retention(settings.retention_days * 86400, settings.responses, settings.key_bytes)
        self._worker = secrets.token_hex(8)
        self._beating: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Creates the tables. Raises JournalError."""
        await self._store.open()
        self._beating = asyncio.get_running_loop().create_task(self._beat())

    async def aclose(self) -> None:
        """Cancels the background responses, which then count as failed."""
        runs = [*self.runs.values()]
        for run in runs:
            run.cancel()
        await asyncio.gather(*runs, return_exceptions=True)
        if self._beating is not None:
            self._beating.cancel()
        await self._store.aclose()

    # --- requests ----------------------------------------------------------------------------------------------

    async def compose(self, fields: JSON, owner: str, most: int) -> tuple[JSON, ResponseStorage]:
        """The request with the whole conversation as its input, and how to store its response. Raises FormatError, and
        Failure, also for a conversation of more than `most` bytes."""
        body = dict(require_object(fields, "the request"))
        previous = body.pop("previous_response_id", None)
        background = optional_flag(body.pop("background", None), "background") is True
        store = optional_flag(body.get("store"), "store") is not False
        if background:
            self._check_background(body, store)
        earlier: list[JSON] = []
        if previous is not None:
            earlier = await self._conversation(require_text(previous, "previous_response_id"), owner, most)
        response_id = f"resp_{secrets.token_hex(10)}"
        items = _with_ids(body.get("input"), response_id)
        if earlier and items is not None:
            body["input"] = [*earlier, *items]
        keeping = ResponseStorage(response_id, owner, cast("str | None", previous), items or (), store, background)
        return body, keeping

    def _check_background(self, body: Mapping[str, JSON], store: bool) -> None:
        if not self.settings.background:
            raise FormatError("background: it is off here: leave it out, or have the operator set responses.background")
        if not store:
            raise FormatError("background: the answer is polled, so it has to be stored: leave 'store' out")
        if body.get("stream"):
            raise FormatError("stream: the answer of a background request is polled here: leave 'stream' out")

    async def _conversation(self, previous: str, owner: str, most: int) -> list[JSON]:
        """The conversation up to and including a response, as input items."""
        try:
            chain = await self._store.chain(owner, previous, most)
        except JournalError as error:
            raise _unavailable(error) from error
        except ConfigurationError as error:
            raise Failure(413, str(error), "request_too_large") from None
        if not chain or chain[0].previous is not None:
            missing = chain[0].previous if chain else previous
            raise Failure(
                404,
                f"previous_response_id: there is no response {describe(missing)}, or no longer; send the whole "
                "conversation as 'input'",
                "previous_response_not_found",
            )
        if chain[-1].status not in _CONTINUABLE:
            raise FormatError(f"previous_response_id: the response is {chain[-1].status}; name one that is complete")
        return [item for each in chain for item in (*_items(each), *_output(each))]

    async def keep(self, keeping: ResponseStorage, response: Mapping[str, JSON]) -> Sequence[Note]:
        """Stores a complete answer. Returns notes if that fails."""
        if not keeping.store:
            return ()
        status, body = str(response["status"]), json.dumps(response)
        if keeping.background:
            await self._save_end(keeping.response_id, status, body)
            return ()
        if status not in _CONTINUABLE:
            return ()
        items = json.dumps([*keeping.items])
        kept_response = StoredResponse(keeping.response_id, keeping.owner, status, keeping.previous, items, body)
        if kept_response.size > self.settings.response_bytes:
            return (_NOT_KEPT,)
        try:
            await self._store.add(kept_response, self._retention)
        except JournalError as error:
            log("response_not_stored", {"problem": str(error)}, level=logging.ERROR)
            return (_NOT_KEPT,)
        return ()

    # --- what clients ask of a response ------------------------------------------------------------------------

    async def retrieve(self, owner: str, response_id: str) -> dict[str, JSON]:
        """Raises Failure if it does not exist."""
        return self._body(await self._get(owner, response_id))

    async def delete(self, owner: str, response_id: str) -> JSON:
        try:
            is_deleted = await self._store.delete(owner, response_id)
        except JournalError as error:
            raise _unavailable(error) from error
        if not is_deleted:
            raise _not_found(response_id)
        self._stop(response_id)
        return {"id": response_id, "object": "response", "deleted": True}

    async def cancel(self, owner: str, response_id: str) -> JSON:
        response = await self._get(owner, response_id)
        body = self._body(response)
        if not body.get("background"):
            raise Failure(400, "only a response with background: true can be cancelled", "invalid_request")
        if response.status not in _OVER:
            body["status"] = "cancelled"
            try:
                if not await self._store.finish(response_id, "cancelled", json.dumps(body)):
                    return await self.retrieve(owner, response_id)
            except JournalError as error:
                raise _unavailable(error) from error
            self._stop(response_id)
        return body

    async def input_items(self, owner: str, response_id: str, query: Mapping[str, str]) -> JSON:
        """A page of the response's input items, as OpenAI lists them: the newest first unless `order` is `asc`."""
        response = await self._get(owner, response_id)
        items = await self._conversation(response.previous, owner, self.settings.key_bytes) if response.previous else []
        items += _items(response)
        order, limit, after = query.get("order", "desc"), query.get("limit", "20"), query.get("after", "")
        if order not in ("asc", "desc"):
            raise Failure(400, f"order: {order[:20]!r} is not an order; write asc or desc", "invalid_request")
        if not limit.isdecimal() or not 1 <= int(limit[:9]) <= _MOST_LISTED:
            raise Failure(400, f"limit: write a number from 1 to {_MOST_LISTED}", "invalid_request")
        rows = [cast("dict[str, Any]", item) for item in items]
        if order == "desc":
            rows.reverse()
        begin = 0
        if after:
            places = [i for i, row in enumerate(rows) if row.get("id") == after]
            if not places:
                raise Failure(400, "after: no input item of this response has the id", "invalid_request")
            begin = places[0] + 1
        page = rows[begin : begin + int(limit[:9])]
        ends = {"first_id": page[0].get("id"), "last_id": page[-1].get("id")} if page else {}
        more = begin + len(page) < len(rows)
        return {"object": "list", "data": page, "first_id": None, "last_id": None, **ends, "has_more": more}

    async def _get(self, owner: str, response_id: str) -> StoredResponse:
        try:
            response = await self._store.get(owner, response_id)
            if response is not None and response.status == "lost":
                problem = "the gateway's process that worked on the response is gone; ask again"
                body = self._failure_body(response.body, "worker_lost", problem)
                await self._store.finish(response_id, "failed", json.dumps(body))
                response = await self._store.get(owner, response_id)
        except JournalError as error:
            raise _unavailable(error) from error
        if response is None:
            raise _not_found(response_id)
        return response

    def _body(self, response: StoredResponse) -> dict[str, JSON]:
        return {**json.loads(response.body), "status": response.status}

    # --- the background ----------------------------------------------------------------------------------------

    async def begin(self, keeping: ResponseStorage, response: Mapping[str, JSON]) -> JSON:
        """Stores a queued response. Raises Failure."""
        body = {**response, "status": "queued"}
        items = json.dumps([*keeping.items])
        queued_response = StoredResponse(
            keeping.response_id, keeping.owner, "queued", keeping.previous, items, json.dumps(body), self._worker
        )
        if queued_response.size > self.settings.response_bytes:
            most = self.settings.response_bytes
            raise Failure(413, f"input: more than {most} bytes cannot be stored: send less", "request_too_large")
        try:
            await self._store.add(queued_response, self._retention)
        except JournalError as error:
            raise _unavailable(error) from error
        return body

    async def mark_started(self, response_id: str) -> None:
        """Marks a response as in progress. Raises CancelledError if it was cancelled meanwhile."""
        try:
            is_claimed = await self._store.start(response_id)
        except JournalError as error:
            raise _unavailable(error) from error
        if not is_claimed:
            raise asyncio.CancelledError

    async def fail(self, response_id: str, response: JSON, failure: Failure) -> None:
        """Ends a background response with an error."""
        body = self._failure_body(json.dumps(response), failure.code, failure.message)
        await self._save_end(response_id, "failed", json.dumps(body))

    def _failure_body(self, body: str, code: str, message: str) -> dict[str, JSON]:
        return {**json.loads(body), "status": "failed", "error": {"code": code, "message": message}}

    async def _save_end(self, response_id: str, status: str, body: str) -> None:
        for seconds in (*_SAVE_SECONDS, None):
            try:
                await self._store.finish(response_id, status, body)
                return
            except JournalError as error:
                if seconds is None:
                    log("response_not_stored", {"problem": str(error)}, level=logging.ERROR)
                else:
                    await asyncio.sleep(seconds)

    def _stop(self, response_id: str) -> None:
        run = self.runs.get(response_id)
        if run is not None:
            run.cancel()

    async def _beat(self) -> None:
        """Renews the leases of this worker's responses, and stops those that were cancelled in another worker."""
        while True:
            await asyncio.sleep(_BEAT_SECONDS)
            running = [*self.runs]
            try:
                living = await self._store.beat(self._worker)
            except Exception as error:  # noqa: BLE001 - without it all that this worker makes would be lost
                log("responses_not_reached", {"problem": str(error)}, level=logging.WARNING)
                continue
            for response_id in running:
                if response_id not in living:
                    self._stop(response_id)


def _with_ids(items: JSON, response_id: str) -> list[JSON] | None:
    """A request's input as items with ids; None for an invalid input."""
    if isinstance(items, str):
        items = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": items}]}]
    if not isinstance(items, list):
        return None
    items_with_ids: list[JSON] = []
    for i, item in enumerate(cast("list[JSON]", items)):
        fields = cast("dict[str, JSON]", item) if isinstance(item, dict) else {"id": True}
        if fields.get("id"):
            items_with_ids.append(item)
        else:
            prefix = _PREFIXES.get(str(fields.get("type", "message")), "item")
            own = f"{prefix}_{response_id.removeprefix('resp_')}_in_{i}"
            items_with_ids.append({"type": "message", **fields, "id": own})
    return items_with_ids


def _items(response: StoredResponse) -> list[JSON]:
    return json.loads(response.items)


def _output(response: StoredResponse) -> list[JSON]:
    return json.loads(response.body)["output"]


def _not_found(response_id: str) -> Failure:
    return Failure(404, f"there is no response {describe(response_id)}, or no longer", "response_not_found")


def _unavailable(error: JournalError) -> Failure:
    message = (
        "stored responses cannot be read or written just now: ask again soon, or send the whole conversation as "
        "'input' with store: false"
    )
    return Failure(503, message, "responses_unavailable", 1, cause=str(error))
