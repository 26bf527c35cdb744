"""A run in a file: the model's turns and the tools' results, recorded once and played again without either."""

from __future__ import annotations

import importlib
from os import PathLike

from toolspeak.agent.cassettes.recording import Recording
from toolspeak.data.values import quick
from toolspeak.providers.base import Provider


@quick()
class Cassette:
    """`Agent(cassette=Cassette.record("run.jsonl"))`, and later `Agent(cassette=Cassette.replay("run.jsonl"))`.

    It belongs to one agent, or to agents that hand their runs to each other: give each of them the same cassette. Their
    runs come one after the other. It records the questions to people with their answers. Interceptors, policies and
    standing answers (`approve="all"`) are not part of it: they act again.
    """

    recording: Recording

    @classmethod
    def record(cls, path: str | PathLike[str], *, go_on: bool = False) -> Cassette:
        """Writes a new recording, which replaces an existing one. With `go_on`, it continues the existing one, for a
        run that was paused or interrupted and is resumed by another agent or process. Raises ConfigurationError for a
        file that is something else."""
        return cls(_side("cassette_writer", "CassetteRecorder", path, go_on=go_on))

    @classmethod
    def replay(cls, path: str | PathLike[str], *, pauses: bool = True) -> Cassette:
        """Plays a recording: sends no request to a model, calls no tool's function, and requests no approval.
        The recorded model and answers replace the agent's.

        A run that paused pauses again, and continues with `Agent.resume`. If `pauses` is False, the later decisions are
        the answers at once. Raises ConfigurationError for a file that is not a recording, naming the line."""
        return cls(_side("player", "Player", path, pauses=pauses))

    @property
    def replays(self) -> bool:
        return self.recording.replayer is not None

    @property
    def requests_left(self) -> int:
        """How many of the recorded requests have not been asked."""
        return self.recording.requests_left

    @property
    def model(self) -> str:
        """The recorded provider, as `provider:model`; "" before one is recorded."""
        return self.recording.model

    @property
    def id(self) -> str:
        """What tells this recording from another one in a file of the same name."""
        return self.recording.id

    def provider(self, model: str | Provider) -> Provider:
        """A provider whose turns go through this cassette, for a Driver made by hand:
        `Agent(NativeDriver(cassette.provider("openai-responses:gpt-5"), resume=True), cassette=cassette)`.

        Several are told apart by the order in which they are asked for. Raises ConfigurationError for one more than
        were recorded, when it plays.
        """
        return self.recording.provider(model)


def _side(module: str, name: str, path: str | PathLike[str], **settings: bool) -> Recording:
    """One of the two; most agents have no cassette, and do not pay for either."""
    return getattr(importlib.import_module(f"toolspeak.agent.cassettes.{module}"), name)(path, **settings)
