"""An analyst with a database: queries run immediately, and writes ask first.

python examples/sql_analyst.py
MODEL=ollama:qwen3:8b python examples/sql_analyst.py "Which customer ordered most?"
"""

import asyncio
import os
import sqlite3
import sys
from pathlib import Path
from typing import Any

from toolspeak import Agent, ApprovalRequest, Effects, RunContext, ToolError, tool

MODEL = os.environ.get("MODEL", f"scripted:{Path(__file__).parent}/scripts/sql_analyst.json")
TASK = "What did each customer order in total? Then double Ada's discount."


def database() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", check_same_thread=False)
    connection.executescript("""
        CREATE TABLE customers (name TEXT PRIMARY KEY, discount INTEGER);
        CREATE TABLE orders (customer TEXT, amount INTEGER);
        INSERT INTO customers VALUES ('Ada', 5), ('Grace', 0);
        INSERT INTO orders VALUES ('Ada', 40), ('Ada', 2), ('Grace', 17);
    """)
    return connection


@tool(effects=Effects(reads=frozenset({"database"})))
def query(sql: str, ctx: RunContext[sqlite3.Connection]) -> list[list[Any]]:
    """Runs one SELECT and returns its rows. The first row has the column names."""
    ctx.deps.execute("PRAGMA query_only = ON")  # the database rejects every write
    try:
        cursor = ctx.deps.execute(sql)
        return [[column[0] for column in cursor.description or ()], *map(list, cursor.fetchmany(100))]
    except sqlite3.Error as error:
        raise ToolError(f"{error}. The tables: {tables(ctx.deps)}") from error
    finally:
        ctx.deps.execute("PRAGMA query_only = OFF")


def rows_changed(sql: str, ctx: RunContext[sqlite3.Connection] | None) -> str:
    """The preview of a change: makes the change and rolls it back."""
    if ctx is None:
        return sql
    try:
        return f"{sql}\n({ctx.deps.execute(sql).rowcount} rows)"
    except sqlite3.Error as error:
        return f"{sql}\n({error})"
    finally:
        ctx.deps.rollback()


@tool(effects=Effects(reads=frozenset({"database"}), writes=frozenset({"database"})), preview=rows_changed)
def change(sql: str, ctx: RunContext[sqlite3.Connection]) -> str:
    """Runs one INSERT, UPDATE or DELETE."""
    try:
        with ctx.deps:
            return f"{ctx.deps.execute(sql).rowcount} rows changed"
    except sqlite3.Error as error:
        raise ToolError(f"{error}. The tables: {tables(ctx.deps)}") from error


def tables(connection: sqlite3.Connection) -> str:
    return "; ".join(sql for (sql,) in connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL"))


async def ask(request: ApprovalRequest) -> bool:
    print(f"\n{request.preview}")
    return (await asyncio.to_thread(input, "Run it? [y/N] ")).strip().lower() == "y"


async def main(task: str) -> None:
    connection = database()
    agent = Agent(
        MODEL,
        [query, change],
        deps_type=sqlite3.Connection,
        instructions=f"You answer questions with SQL (SQLite). {tables(connection)}",
        approve=ask,
    )
    result = await agent.run(task, deps=connection)
    print(result)
    print(connection.execute("SELECT * FROM customers").fetchall())


if __name__ == "__main__":
    asyncio.run(main(" ".join(sys.argv[1:]) or TASK))
