# pyright: strict
"""Tools keep their functions' signatures; functions of their arguments are checked."""

from pydantic import BaseModel

from toolspeak import Effects, RunContext, Tool, Toolset, tool


class Database:
    def rows(self) -> list[str]:
        return []


@tool
def add(first: int, second: int) -> int:
    """Adds two numbers."""
    return first + second


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
tool_list: list[Tool] = [add, write, find, read]
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


class Booking(BaseModel):
    day: str


def book(booking: Booking, ctx: RunContext[Database]) -> int:
    return len(booking.day)


book_tool = Tool.from_model(book, effects=lambda booking: Effects(writes={str(booking)}), timeout=3)
search_tool = Tool.from_schema(letters_of, parameters={"type": "object"}, read_only=True)
passed_on = Tool.from_openai(letters_of, {"type": "function", "name": "letters"})
letters: int = search_tool("a")
guests: int = passed_on("a")

book_tool("monday")  # wrong
search_tool(3)  # wrong
Tool.from_schema(letters_of, parameters={}, readonly=True)  # wrong
Tool.from_schema(letters_of)  # wrong
Tool.from_model(book, timeout="3")  # wrong
