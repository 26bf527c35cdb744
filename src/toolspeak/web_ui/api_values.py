"""The requests and answers of the API as values. Their JSON Schemas are in its OpenAPI description."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, TypeAlias

from msgspec import Meta

from toolspeak.data.messages import JSON
from toolspeak.data.run_values import RunStatus
from toolspeak.data.values import quick
from toolspeak.execute.approval.always_rules import AlwaysScope

UiRole: TypeAlias = Literal["look", "approve", "run"]
"""What a caller may do: read; decide about calls; start, steer and stop runs."""

ViewPart: TypeAlias = Literal["runs", "gateway"]

Count: TypeAlias = Annotated[int, Meta(ge=0)]
PageSize: TypeAlias = Annotated[int, Meta(ge=1, le=500)]
ShortText: TypeAlias = Annotated[str, Meta(max_length=1_000)]
LongText: TypeAlias = Annotated[str, Meta(min_length=1, max_length=500_000)]


# --- who calls ------------------------------------------------------------------------------------------------------


@quick()
class Secret:
    """A key, or the token of the address that `toolspeak ui` prints."""

    secret: Annotated[str, Meta(min_length=1, max_length=1_000)]


@quick()
class Me:
    """The caller.

    - `csrf` goes into the header `x-csrf-token` of requests that change something.
    - `shows`: what there is for the caller on this server.
    - `sees`: the principal whose runs alone the caller sees; None: all.
    """

    principal: str
    roles: tuple[UiRole, ...]
    csrf: str
    version: str
    shows: tuple[ViewPart, ...]
    sees: str | None = None


# --- lists ----------------------------------------------------------------------------------------------------------


@quick()
class RunsQuery:
    """Which runs, newest first if not `oldest_first`. `after` is the `next` of the page before.

    `from_time` (Unix seconds): the list begins there, with runs that began before it; with `oldest_first` with those
    that began then or later.
    """

    status: RunStatus | None = None
    agent: ShortText | None = None
    model: ShortText | None = None
    principal: ShortText | None = None
    folder: ShortText | None = None
    dialect: ShortText | None = None
    session: ShortText | None = None
    parent: ShortText | None = None
    prefix: ShortText = ""
    oldest_first: bool = False
    from_time: Annotated[float, Meta(ge=0, le=1e12)] | None = None
    after: ShortText | None = None
    limit: PageSize = 100


@quick()
class RunItem:
    """A run in a list. `status` is also `interrupted`: no process drives a run that is `running`. Times are Unix
    seconds."""

    run_id: str
    status: str
    title: str
    model: str
    agent: str
    created: float
    updated: float
    records: int
    session_id: str | None = None
    principal: str | None = None
    parent_run_id: str | None = None
    folder: str | None = None
    dialect: str | None = None
    is_held: bool = False


@quick()
class RunsPage:
    """Runs, the newest first. `next` is None on the last page."""

    runs: tuple[RunItem, ...]
    next: str | None = None


@quick()
class SessionsQuery:
    """Which sessions. `after` is the `next` of the page before."""

    principal: ShortText | None = None
    after: ShortText | None = None
    limit: PageSize = 100


@quick()
class SessionItem:
    """A session in a list. Times are Unix seconds."""

    session_id: str
    title: str
    created: float
    updated: float
    runs: int
    last_run: str | None = None
    principal: str | None = None
    forked_from: str | None = None


@quick()
class SessionsPage:
    """Sessions, the most recently used first."""

    sessions: tuple[SessionItem, ...]
    next: str | None = None


@quick()
class SearchQuery:
    """The words to search for; the last one may be a beginning."""

    q: Annotated[str, Meta(min_length=1, max_length=300)]
    limit: Annotated[int, Meta(ge=1, le=100)] = 30


@quick()
class SearchMatch:
    """A text with the words, and where it is."""

    run_id: str
    seq: int
    title: str
    time: float
    role: str
    snippet: str
    session_id: str | None = None


@quick()
class SearchMatches:
    """The texts with the words, the newest first."""

    matches: tuple[SearchMatch, ...]


# --- one run --------------------------------------------------------------------------------------------------------


@quick()
class RunTotals:
    """What a run has used. `cost` is in US dollars, None if unknown."""

    input: int
    output: int
    cached: int
    reasoning: int
    calls: int
    is_estimated: bool
    cost: float | None


@quick()
class AlwaysOffer:
    """Calls that a person may always approve because of a question: their `scope` in a decision, and in words."""

    scope: AlwaysScope
    text: str


@quick()
class OpenQuestion:
    """A call that needs a decision.

    - `seq`: the record that asks.
    - `digest`: what a decision must name.
    - `always`: what may always be approved because of it.
    - `parameters`: the schema of the tool's arguments; None if the run did not record it.
    - `decided_by`: who has decided, if no process has continued the run since.
    """

    call_id: str
    seq: int
    digest: str
    tool: str
    reason: str
    decision: str = ""
    decided_by: str = ""
    always: tuple[AlwaysOffer, ...] = ()
    parameters: JSON = None


@quick()
class RunDetail:
    """How a run stands.

    - `asks_elsewhere`: the process that drives the run asks its own person.
    - `can_fork_model`: a fork may have another model or dialect.
    """

    run: RunItem
    step: int
    totals: RunTotals
    limits: Mapping[str, float | None]
    questions: tuple[OpenQuestion, ...]
    waits: tuple[str, ...]
    unread_messages: tuple[str, ...]
    sub_runs: tuple[RunItem, ...]
    answer: str
    reason: str
    error: str
    asks_elsewhere: bool
    can_fork_model: bool
    until: float | None = None


@quick()
class ComparisonQuery:
    """The run to compare with."""

    other: ShortText


@quick()
class RunComparison:
    """How two runs compare: how many records say the same, and the first record of each that does not; None where a
    run has no more."""

    common: int
    seq: int | None = None
    other_seq: int | None = None


@quick()
class PageQuery:
    """A part of a list."""

    start: Count = 0
    limit: Annotated[int, Meta(ge=1, le=2_000)] = 200


@quick()
class CutText:
    """A text, list or object of which the record has only the beginning. `length` counts characters or entries."""

    place: tuple[str | int, ...]
    length: int


@quick()
class RecordItem:
    """A record. `kind` is the type of its event (docs/reference/stream.md). `cut` says what is not whole here."""

    seq: int
    step: int
    time: float
    kind: str
    event: JSON
    agent: str = "agent"
    call_id: str | None = None
    principal: str | None = None
    cut: tuple[CutText, ...] = ()


@quick()
class RecordsPage:
    """Records in order. `next` is the number of the next one; `is_last`: there is none yet."""

    records: tuple[RecordItem, ...]
    next: int
    is_last: bool


@quick()
class TextQuery:
    """A part of a text of a record. `place` is a `place` of `cut`, as JSON."""

    place: ShortText = "[]"
    start: Count = 0
    length: Annotated[int, Meta(ge=1, le=500_000)] = 100_000


@quick()
class TextPiece:
    """A part of a text. `total` counts all its characters."""

    text: str
    start: int
    total: int


@quick()
class MessageItem:
    """A message as the model read it."""

    role: str
    parts: JSON
    cut: tuple[CutText, ...] = ()


@quick()
class MessagesPage:
    """The messages that the model read at a step, the part of it from `start`. `total` counts all of them."""

    messages: tuple[MessageItem, ...]
    start: int
    total: int


# --- what changes a run ---------------------------------------------------------------------------------------------


@quick()
class DecisionBody:
    """The answer to a question.

    - `digest`: that of the question as the person saw it.
    - `action`: `edit` approves the call with `arguments` instead; `always` approves it, and from then on every call
      of its `scope`, while the tool's definition stays as it was for the question: with exactly these arguments
      ("call"), whose commands begin alike ("commands"), that reads the same hosts of the web ("host"), or every call
      of the tool ("tool"). The question's `always` says which of them there are.
    - `reason`: of a refusal, for the model. `ends_run`: a refusal that ends the run.
    """

    call_id: ShortText
    digest: ShortText
    action: Literal["approve", "refuse", "edit", "always"]
    reason: Annotated[str, Meta(max_length=20_000)] = ""
    arguments: dict[str, JSON] | None = None
    ends_run: bool = False
    scope: AlwaysScope = "call"


@quick()
class DecisionMade:
    """The decision that counts, and who made it."""

    call_id: str
    approved: bool
    by: str


@quick()
class MessageBody:
    """A message to a run. Of the same `key` only the first one counts."""

    text: LongText
    key: Annotated[str, Meta(max_length=100)] | None = None


@quick()
class MessageSent:
    """Whether the message is new."""

    is_new: bool


@quick()
class Suspension:
    """Whether the run stands still already (`suspended`), or will after its current step (`requested`)."""

    status: Literal["suspended", "requested"]


@quick()
class Acceptance:
    """The run, as it stands now."""

    run_id: str
    status: str


@quick()
class ForkBody:
    """A new run that continues the conversation as it was before the record `seq`.

    - `task`: what it is to do. None: the task that the conversation ends with.
    - `agent`, `model`, `dialect`: others than the run's. The last two need a run of `toolspeak run`.
    """

    seq: Count
    task: LongText | None = None
    agent: ShortText | None = None
    model: ShortText | None = None
    dialect: ShortText | None = None


@quick()
class SubmitBody:
    """A new run for a worker that has the agent. Submitting the same `run_id` twice gives the same run.

    The ids of a caller who sees one principal alone are apart from those of all others: the answer has the run's id,
    which begins with a digest of the principal and ends with `run_id`.
    """

    agent: Annotated[str, Meta(min_length=1, max_length=200)]
    task: LongText
    run_id: ShortText | None = None
