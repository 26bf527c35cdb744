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

    It goes with one agent, whose runs come one after the other. What is asked of people is recorded with their answers;
    interceptors, policies and standing answers (`approve="all"`) are not part of it: they act again.
    """

    recording: Recording

    @classmethod
    def record(cls, path: str | PathLike[str], *, go_on: bool = False) -> Cassette:
        """Writes a new recording, in place of one that is there. With `go_on` it goes on with that one, for a run that
        was paused or interrupted and is resumed by another agent or process. Raises ConfigurationError for a file that
        is something else."""
        return cls(_side("cassette_writer", "CassetteRecorder", path, go_on=go_on))

    @classmethod
    def replay(cls, path: str | PathLike[str], *, pauses: bool = True) -> Cassette:
        """Plays a recording: no model is asked, no tool's function is called, and nobody is asked for approval.
        Whatever model the agent is given, it is the one that was recorded, and so are the answers.

        A run that paused pauses again, and goes on with `Agent.resume`; unless `pauses` is False: then what was decided
        later is the answer at once. Raises ConfigurationError for a file that is no recording, naming the line."""
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
        """The provider that is recorded, as `provider:model`; "" as long as there is none."""
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
