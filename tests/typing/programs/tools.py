# pyright: strict
"""Tools keep their functions' signatures; functions of their arguments are checked."""

from toolspeak import Effects, RunContext, Tool, Toolset, tool


class Database:
    def rows(self) -> list[str]:
        return []


@tool
def add(left: int, right: int) -> int:
    """Adds two numbers."""
    return left + right


@tool(effects=lambda path: Effects(writes={f"file:{path}"}), timeout=lambda path, text: len(text) / 1000)
def write(path: str, text: str) -> None:
    """Writes a file."""


@tool(read_only=True, preview=lambda query, ctx: f"{query}?")
async def find(query: str, ctx: RunContext[Database]) -> list[str]:
    """Finds rows."""
    return [row for row in ctx.deps.rows() if query in row]


def effects_of(path: str) -> Effects:
    return Effects(reads={path})


@tool(effects=effects_of)
def read(path: str) -> str:
    """Reads a file."""
    return path


total: int = add(19, 23)
text: str = read("a")
none: None = write("a", "b")
made: list[Tool] = [add, write, find, read]
toolset = Toolset([add, read, len])
name: str = add.spec.name


async def in_a_tool(ctx: RunContext[Database]) -> list[str]:
    return await find("x", ctx)


add("19", 23)  # wrong
add(19)  # wrong
word: str = add(19, 23)  # wrong
write(path="a")  # wrong


def letters_of(path: str) -> int:
    return len(path)


@tool(effects=letters_of)  # wrong
def erase(path: str) -> None:
    """Erases a file."""


@tool(read_only="yes")  # wrong
def look() -> None:
    """Looks."""
