"""`memory`: facts about the user, which a model reads in later conversations."""

from __future__ import annotations

from typing import Any, Literal

from toolspeak.data.tools import NO_VERSION, Effects, with_sources
from toolspeak.tools import RunContext, Tool, tool
from toolspeak.tools.builtin.fact_file import FactFiles
from toolspeak.tools.returned_values import ReturnValue, to_content

MEMORY = "memory"

_READS = Effects(reads={"memory:"}, idempotent=True, destructive=False, version=NO_VERSION)
_WRITES = Effects(reads={"memory:"}, writes={"memory:"}, idempotent=True)


def memory_tool(facts: FactFiles) -> Tool:
    """The tool `memory`. It reads and changes the facts about the run's `principal`, and of no other.

    Each change is a write: it needs approval, unless rules or the caller allow it. So nothing that a page or a tool
    says is kept without a person's yes. `FactFiles.prompt` is what the model reads at the beginning.
    """

    def effects(action: str) -> Effects:
        return _READS if action == "list" else _WRITES

    def would(action: str, fact: str, id: str, ctx: RunContext[Any] | None) -> str:  # noqa: A002 - the parameter's name
        principal = None if ctx is None else ctx.principal
        before = facts.get(principal, id).text if action in ("change", "forget") else ""
        lines = [f"- {before}"] if before else []
        lines += [f"+ {' '.join(fact.split())}"] if action in ("save", "change") else []
        return "\n".join(lines)

    @tool(name=MEMORY, effects=effects, effects_bound=_WRITES, preview=would)
    def memory(
        action: Literal["save", "change", "forget", "list"],
        ctx: RunContext[Any],
        fact: str = "",
        id: str = "",  # noqa: A002 - the name that a model expects
    ) -> str | ReturnValue:
        """Keep facts about the user for later conversations: wishes, names, decisions that hold for long.

        Save what the user tells you about themselves or asks you to remember; one fact each, as a sentence that can be
        understood alone. Do not save secrets, or what the task alone needs.

        Args:
            action: What to do.
            fact: The fact; for `list`, words that must be in it.
            id: The fact to change or forget.
        """
        # As the model wrote it: a secret's value does not belong into a file.
        stored_text = ctx.call.arguments.get("fact", "")
        text = stored_text if isinstance(stored_text, str) else fact
        principal, run_id, call = ctx.principal, ctx.run_id or "", ctx.idempotency_key
        sources = () if ctx.state is None else ctx.state.sources
        match action:
            case "save":
                fact_id = facts.save(principal, text, run_id=run_id, call=call, sources=sources).id
                return f"Remembered as {fact_id}."
            case "change":
                fact_id = facts.change(principal, id, text, run_id=run_id, call=call, sources=sources).id
                return f"Changed: {fact_id}."
            case "forget":
                return f"Forgotten: {facts.forget(principal, id).text}"
            case "list":
                every, _ = facts.read(principal)
                words = text.casefold().split()
                matches = [each for each in every if _has(each.text, words)]
                lines = [f"[{each.id}] {each.text}" for each in matches]
                read_sources = {source for each in matches for source in each.sources}
                parts, _ = to_content("\n".join(lines) or "Nothing is remembered about that.")
                return ReturnValue(parts, extra=with_sources({}, read_sources))

    return memory


def _has(text: str, words: list[str]) -> bool:
    folded_text = text.casefold()
    return all(word in folded_text for word in words)
