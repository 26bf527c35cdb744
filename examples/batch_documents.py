"""A typed answer about each of 1,000 documents, 20 at once. It continues if you stop or kill it and start it again.

    python examples/batch_documents.py results.db
    MODEL=ollama:qwen3:8b python examples/batch_documents.py results.db letters/*.txt

Each document has its own session in the journal, named after it. A second start skips the documents that have an
answer and resumes the interrupted sessions.
"""

import asyncio
import os
import sys
from contextlib import aclosing
from pathlib import Path

from pydantic import BaseModel

from toolspeak import Agent, RunError, Session, SqliteJournal
from toolspeak.data.events import RunFinished

MODEL = os.environ.get("MODEL", f"scripted:{Path(__file__).parent}/scripts/batch_documents.json")
AT_ONCE = 20


class Letter(BaseModel):
    """What a letter is about."""

    topic: str
    needs_answer: bool


async def classify(agent: Agent[None, Letter], journal: SqliteJournal, name: str, text: str) -> Letter:
    session = Session(agent, name)
    try:
        last = (await session.info()).last_run
    except RunError:  # the session has no run yet
        last = None
    if last is None:
        result = await session.run(f"Classify this letter.\n\n{text}")
        return result.output
    *_, end = await journal.read(last)
    if isinstance(end.event, RunFinished):
        return Letter.model_validate_json(end.event.answer)
    return (await agent.resume(last)).output


async def main(path: str, letters: dict[str, str]) -> None:
    async with aclosing(SqliteJournal(path)) as journal:
        agent = Agent(MODEL, output=Letter, journal=journal)
        slots = asyncio.Semaphore(AT_ONCE)
        names: list[str] = []

        async def one(name: str, text: str) -> Letter:
            async with slots:
                letter = await classify(agent, journal, name, text)
            names.append(name)
            if len(names) % 100 == 0:
                print(f"{len(names)} letters", flush=True)
            return letter

        answers = await asyncio.gather(*(one(name, text) for name, text in letters.items()))
    print(f"{sum(answer.needs_answer for answer in answers)} of {len(answers)} letters need an answer")


if __name__ == "__main__":
    database, *paths = sys.argv[1:]
    letters = {path: Path(path).read_text() for path in paths}
    asyncio.run(main(database, letters or {f"letter {i}": "When do you open? " * (1 + i % 3) for i in range(1000)}))
