"""The settings of code mode."""

from __future__ import annotations

from typing import cast

from toolspeak.data.values import quick
from toolspeak.errors import ConfigurationError


@quick()
class CodeMode:
    """How a model's programs run (`Agent(code_mode=…)`).

    - `direct`: the tools that the model may also call without a program, by name.
    - `seconds`: how long a program may compute. Waiting for tools and for approvals does not count.
    - `memory`: the most bytes that a program's values may take.
    - `calls`: the most calls that a program may make.
    - `output`: the most characters that a program may print; the rest is dropped, and the model is told.
    - `result_bytes`: the most bytes of one call's result that a program gets.

    Raises ConfigurationError for a limit that is not a number above 0, and names that are not strings.
    """

    direct: tuple[str, ...] = ()
    seconds: float = 10.0
    memory: int = 256 * 1024 * 1024
    calls: int = 1000
    output: int = 64 * 1024
    result_bytes: int = 1024 * 1024

    def __post_init__(self) -> None:
        for name in ("seconds", "memory", "calls", "output", "result_bytes"):
            limit = cast("object", getattr(self, name))
            kinds = (int, float) if name == "seconds" else int
            if isinstance(limit, bool) or not isinstance(limit, kinds) or not limit > 0:
                raise ConfigurationError(f"CodeMode({name}={limit!r}): expected a number above 0")
        names = cast("object", self.direct)
        if isinstance(names, str) or not all(isinstance(name, str) for name in cast("tuple[object, ...]", names)):
            raise ConfigurationError(f"CodeMode(direct={names!r}): expected names of tools, such as ('shell',)")
