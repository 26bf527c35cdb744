"""The messages of a user that a run has not read yet: of this process, and of others."""

from __future__ import annotations

from collections.abc import Sequence

from toolspeak.agent.interceptors import InterceptorRunner
from toolspeak.agent.recorder import Recorder
from toolspeak.agent.settings import RunSettings
from toolspeak.agent.state.history import without_secrets
from toolspeak.data.codec import load
from toolspeak.data.events import UserMessageQueued
from toolspeak.data.messages import Message


class Inbox:
    """What was said to a run. Its messages are read between two steps."""

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._has_news = False  # other processes may have sent messages

    @property
    def may_have_unread(self) -> bool:
        """Whether `read` may have something to do."""
        return self._has_news or bool(self._messages)

    @property
    def unread(self) -> Sequence[Message]:
        """The messages of this process that were not read."""
        return tuple(self._messages)

    def put(self, message: Message) -> None:
        """Adds a message of this process."""
        self._messages.append(message)

    def look(self) -> None:
        """Lets the next `read` look for messages of other processes."""
        self._has_news = True

    async def read(self, settings: RunSettings, recorder: Recorder, interceptors: InterceptorRunner) -> None:
        """Records the messages until now, each once, unless an interceptor refuses it."""
        if self._has_news:
            self._has_news = False
            journal, run_id = settings.journal, recorder.state.run_id
            for entry in await journal.inputs(run_id, driver=True):
                if entry.kind != "message" or entry.taken_by is not None:
                    continue
                if entry.key not in recorder.state.message_keys:  # or a process died before it marked the input
                    message = load(entry.data)
                    await _admit(message, settings, recorder, interceptors, entry.key, entry.principal)
                await journal.take_input(entry, run_id)
        while self._messages:
            await _admit(self._messages[0], settings, recorder, interceptors)
            del self._messages[0]  # now it is read, or refused


async def _admit(
    user_message: Message,
    settings: RunSettings,
    recorder: Recorder,
    interceptors: InterceptorRunner,
    key: str = "",
    by: str | None = None,
) -> None:
    message: object = without_secrets(user_message, settings.secrets)
    if "message" in interceptors.levels:
        message, facts = await interceptors.admit("message", message, recorder.state.metadata)
        await recorder.record_all(facts)
    if isinstance(message, Message):
        await recorder.record(UserMessageQueued(message, key, by))
