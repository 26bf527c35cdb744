"""What an agent asks of a cassette, whether it records or plays."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Protocol

from toolspeak.agent.drivers.base import Driver
from toolspeak.agent.state.state import RunState
from toolspeak.data.events import ApprovalDecided, SubRunUsed
from toolspeak.errors import ReplayDiverged
from toolspeak.execute import Approver, BatchApprover, CassetteResults, Replayer, Secrets
from toolspeak.providers.base import Provider


class TurnCutOff(ReplayDiverged):
    """The recorded turn ends here without its end, and the recording continues: a run with a time limit was cut off by
    it, and is cut off again."""


class Recording(Protocol):
    """One side of a cassette. It belongs to one agent, or to agents that hand runs to each other. Runs come one after
    the other."""

    agents: list[str]
    """The names of the agents that it belongs to."""

    @property
    @abstractmethod
    def cassette_results(self) -> CassetteResults | None:
        """What keeps the calls' results, if it records."""

    @property
    @abstractmethod
    def replayer(self) -> Replayer | None:
        """What says them, if it plays."""

    @property
    @abstractmethod
    def requests_left(self) -> int:
        """How many of the recorded requests have not been asked."""

    @property
    @abstractmethod
    def model(self) -> str:
        """The first recorded provider, as `provider:model`; "" before one is recorded."""

    @property
    @abstractmethod
    def id(self) -> str:
        """What tells this recording from another one in a file of the same name."""

    @abstractmethod
    def provider(self, model: str | Provider) -> Provider:
        """The provider through which a driver reaches this model; the next one at each call."""

    @abstractmethod
    def attach(
        self, agent: str, model: str | Provider | Driver, approver: Approver | BatchApprover | None, secrets: Secrets
    ) -> tuple[Provider | Driver, Approver | BatchApprover | None]:
        """The model as the agent of this name reaches it, and who answers its questions. Raises ConfigurationError for
        another agent of the name, and for a Driver whose providers are not of this cassette."""

    @abstractmethod
    def clock(self, own: Callable[[], float]) -> Callable[[], float]:
        """The clock that the agent's runs go by, in Unix seconds; `own` is the agent's."""

    @abstractmethod
    def resume(self, state: RunState, new_decisions: Sequence[ApprovalDecided]) -> None:
        """A run continues from this state; what was decided about its calls meanwhile. Raises ReplayDiverged if
        something else was decided when it was recorded."""

    @abstractmethod
    def record_sub_run(self, usage_event: SubRunUsed) -> None:
        """A run that a tool started has used this."""
