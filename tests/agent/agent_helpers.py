"""What the agent's tests share: tools, journals that look, and providers that hang."""

import asyncio

from toolspeak import Agent, Effects, tool
from toolspeak.data.deltas import TextDelta
from toolspeak.data.events import ToolFinished
from toolspeak.data.messages import Message, ToolCall
from toolspeak.dialects import get_dialect
from toolspeak.journal.memory_journal import MemoryJournal
from toolspeak.providers import Capabilities
from toolspeak.providers.scripted_provider import ScriptedProvider
from toolspeak.tools import Toolset

DIALECTS = ("cogency-json", "cogency-xml", "tool-call")


@tool(read_only=True)
def add(a: int, b: int) -> int:
    "Adds two numbers."
    return a + b


@tool(effects=lambda path: Effects(writes={f"note:{path}"}))
def note(path: str) -> str:
    "Writes a note."
    return f"wrote {path}"


TOOLS = Toolset([add, note])


def calling(dialect, *calls, tools=TOOLS, before=""):
    """A turn that makes these calls, `(name, arguments)` each, as the dialect writes them."""
    calls_made = tuple(ToolCall("", name, arguments) for name, arguments in calls)
    messages = get_dialect(dialect).render([Message("assistant", calls_made)], tools.specs)
    return before + "\n".join(message.text for message in messages)


def adding(a, b, dialect="cogency-json"):
    return calling(dialect, ("add", {"a": a, "b": b}))


class WatchedJournal(MemoryJournal):
    """A journal of one run or a few; `look` sees each record before it is durable and may raise."""

    def __init__(self, look=lambda record: None):
        super().__init__()
        self.records = []
        self.look = look

    async def append(self, record, lease=None):
        self.look(record)
        await asyncio.sleep(0)  # durability takes a moment
        self.records.append(record)
        await super().append(record, lease)

    @property
    def events(self):
        return [record.event for record in self.records]

    @property
    def kinds(self):
        return [type(event).__name__ for event in self.events]

    def all(self, kind):
        return [event for event in self.events if isinstance(event, kind)]

    def results(self):
        return [event.result for event in self.all(ToolFinished)]


class OpenProvider:
    """Streams the pieces and then nothing more, for ever; `closed` once its stream was closed."""

    name, capabilities = "open", Capabilities()

    def __init__(self, *pieces):
        self.pieces = pieces
        self.requests = []
        self.all_sent = asyncio.Event()
        self.read = 0
        self.closed: bool = False

    async def stream(self, request):
        self.requests.append(request)
        try:
            for piece in self.pieces:
                self.read += 1
                yield TextDelta(piece)
            self.all_sent.set()
            await asyncio.Event().wait()
        finally:
            self.closed = True

    async def aclose(self):
        pass


def an_agent(turns, tools=TOOLS, *, journal=None, **options):
    """An agent with a scripted model (turns, or a provider), all calls approved unless the options say otherwise."""
    provider = ScriptedProvider(turns) if isinstance(turns, list | tuple) else turns
    options.setdefault("approve", "all")
    return Agent(provider, tools, journal=journal, **options)


def play(turns, tools=TOOLS, *, task="do it", journal=None, run=None, **options):
    """Runs a playbook; the result, the journal and the provider."""
    provider = ScriptedProvider(turns) if isinstance(turns, list | tuple) else turns
    journal = WatchedJournal() if journal is None else journal
    agent = an_agent(provider, tools, journal=journal, **options)
    return asyncio.run(agent.run(task, **(run or {}))), journal, provider


def texts(request):
    return [message.text for message in request.messages]


def assert_pairs(messages):
    """Every batch of calls is followed at once by its results, complete and in order."""
    for i, message in enumerate(messages):
        if message.calls:
            assert messages[i + 1].role == "tool"
            assert [result.call_id for result in messages[i + 1].results] == [call.id for call in message.calls]
        if message.results:
            assert messages[i - 1].calls
