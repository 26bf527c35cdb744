"""Imports point down (docs/design.md, section 3), and importing does nothing."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

import pytest

import toolspeak
from toolspeak.cli.command_table import COMMANDS_BY_FOLDER

SOURCE = Path(__file__).parents[1] / "src" / "toolspeak"
MAX_LINES = 420
MAX_FILES = 25

CORE = {
    "lazy", "version", "errors", "data", "dialects", "wire", "sandbox", "tools", "programs", "journal", "providers",
    "execute", "agent",
}  # fmt: skip
EDGES = {
    "interceptors",
    "ui",
    "testing",
    "mcp",
    "adapters",
    "gateway",
    "engines",
    "telemetry",
    "web_ui",
    "changes",
    "project",
    "chat",
    "acp",
    "cli",
}

# Which rooms a room may import besides itself.
LOWER_ROOMS: dict[str, set[str]] = {
    "lazy": set(),
    "version": set(),
    "errors": set(),
    "data": {"errors"},
    "dialects": {"lazy", "errors", "data"},
    "wire": {"errors", "data"},
    "sandbox": {"lazy", "errors", "data"},
    "tools": {"lazy", "errors", "data", "sandbox"},
    "programs": {"lazy", "errors", "data", "sandbox", "tools"},
    "journal": {"lazy", "errors", "data"},
    "providers": {"lazy", "errors", "data", "wire"},
    "execute": {"errors", "data", "tools"},
    "agent": CORE,
    "interceptors": CORE,
    "ui": {"errors", "data", "tools", "execute", "agent"},
    "mcp": CORE,
    "adapters": CORE,
    "gateway": CORE | {"mcp"},
    "engines": CORE,
    "telemetry": CORE,
    "web_ui": CORE | {"engines", "gateway", "project", "ui"},
    "changes": CORE,
    "project": CORE | {"mcp", "changes"},
    "chat": CORE | {"ui", "mcp", "changes", "project"},
    "acp": CORE | {"mcp", "ui", "project", "changes"},
    "testing": CORE | {"engines"},
    "cli": CORE | EDGES,
    "__main__": {"cli"},
}

# What the formats of `wire` share: files beside their folders.
WIRE_SHARED = {
    "base", "base64_data", "call_assembler", "error_table", "json_conversion", "strict_schema",
}  # fmt: skip

# What the commands share besides the folder `options`: files beside the folders. `main` and `command_table` find a
# command by its name.
CLI_SHARED = {
    "attended_run", "changes_upkeep", "configuration", "demo_project", "demo_schedules", "exit_codes",
    "journal_removals", "json_input", "mcp_pinning", "mcp_serving", "piped_text", "reply_description", "signals",
    "timeline_file", "web_view",
}  # fmt: skip

# What every dialect is made against: files beside the folders of `dialects`.
DIALECT_CONTRACT = {"base", "prompt", "turn_rules"}

# Which folders and files of its room a folder, or a file beside the folders, may import besides itself. A file that is
# not in the table may import all of them, unless a folder may import it: then it may import files beside it only.
FOLDERS: dict[str, dict[str, set[str]]] = {
    "gateway": {
        "settings": set(),
        "turns": set(),
        "running_streams": set(),
        "observability": {"settings", "turns"},
        "upstreams": {"settings", "observability"},
        "http": {"settings", "turns", "observability", "upstreams"},
        "usage": {"database", "settings", "turns", "observability", "http"},
        "stored": {"database", "settings", "turns", "observability", "http"},
        "server_tools": {"settings", "turns", "observability", "upstreams"},
        "requests": {"settings", "turns", "upstreams", "http"},
        "settings_generation": {"settings", "observability", "upstreams", "usage", "stored", "server_tools"},
        "client_request": {
            *("settings", "turns", "observability", "upstreams", "http", "usage", "stored", "server_tools"),
            *("settings_generation", "running_streams"),
        },
        "responses": {
            *("settings", "turns", "observability", "upstreams", "http", "usage", "stored", "server_tools", "requests"),
            "client_request",
        },
    },
    "agent": {
        "drivers": set(),
        "state": {"drivers"},
        "cassettes": {"drivers", "state"},
        "storage": {"state"},
        "charts": set(),
        "validation": {"options", "state"},
        "settings": {"options", "validation", "drivers", "state", "cassettes"},
        "handoffs": {"settings", "validation"},
        "recording": {"settings", "handoffs", "drivers", "state", "storage"},
    },
    "dialects": {
        "text": set(),
        "grammar": {"text", "turn_rules"},
        "base": {"grammar", "prompt", "turn_rules"},
        "registry": {"base"},
        "model_lookup": {"base"},
        "prompts": DIALECT_CONTRACT | {"text", "grammar"},
        "readers": {"text", "grammar", "prompts"},
        "parser": DIALECT_CONTRACT | {"text", "prompts", "readers"},
        "trained": {"prompt", "model_lookup", "text", "prompts"},
        "declarations": DIALECT_CONTRACT | {"text", "grammar", "prompts", "readers", "parser", "trained"},
        "protocols": DIALECT_CONTRACT | {"text", "grammar", "prompts", "readers", "parser"},
        "models": DIALECT_CONTRACT | {"text", "grammar", "prompts", "readers", "parser", "declarations"},
        "detection": DIALECT_CONTRACT | {"registry", "text", "grammar", "readers", "parser", "declarations", "models"},
    },
    "wire": dict.fromkeys(("anthropic", "gemini", "ollama", "openai_chat", "openai_responses"), WIRE_SHARED),
    "execute": {
        "concurrency": set(),
        "calls": {"concurrency"},
        "approval": {"calls", "concurrency"},
    },
    "project": {
        "user_files": set(),
        "folders": {"user_files"},
        "surroundings": {"folders"},
        "configuration": {"folders", "hook_settings", "own_tools", "run_setup", "surroundings", "user_files"},
    },
    # "" is what the package `tools` itself names: `from toolspeak.tools import Tool`.
    "tools": {
        "files": {"context"},
        "builtin": {"", "files", "returned_values", "stored_results"},
        "web": {"", "files", "returned_values"},
    },
    "chat": {"display": set(), "terminal": {"display"}},
    "cli": {
        "options": {"signals"},
        **dict.fromkeys(CLI_SHARED - {"signals"}, CLI_SHARED | {"options"}),
        **dict.fromkeys(COMMANDS_BY_FOLDER, CLI_SHARED | {"options"}),
    },
}

# The lowest rooms: the standard library, and besides it only what makes their values.
LIBRARIES: dict[str, set[str]] = {"lazy": set(), "errors": set(), "data": {"msgspec"}}

# What a sans-IO room must not know: the network, clocks, chance, files and threads.
SANS_IO = {"dialects", "wire"}
IMPURE = {
    "asyncio", "socket", "ssl", "time", "random", "secrets", "os", "pathlib", "httpx2", "threading", "subprocess",
    "anyio", "select", "selectors", "uuid", "multiprocessing", "concurrent", "tempfile", "shutil",
}  # fmt: skip


def module_of(path: str) -> str:
    """`dialects/models/hermes.py` → `toolspeak.dialects.models.hermes`."""
    parts = ["toolspeak", *Path(path).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(tree: ast.Module, path: str) -> Iterator[tuple[int, str]]:
    """Line and full name of everything that a file imports, wherever the import is."""
    package = module_of(path).split(".")
    if Path(path).name != "__init__.py":
        package.pop()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                # `from toolspeak import errors` names a room; of other modules the module alone matters.
                yield node.lineno, f"{module}.{alias.name}" if module == "toolspeak" else module


def violations(path: str, text: str) -> list[str]:
    """What is wrong with one source file; `path` is relative to the package."""
    tree = ast.parse(text)
    problems: list[str] = []
    lines = text.count("\n")
    if lines > MAX_LINES:
        problems.append(f"{path}: {lines} lines, more than {MAX_LINES}")
    on_top = {id(node) for node in tree.body}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom) and id(node) not in on_top:
            problems.append(f"{path}:{node.lineno}: an import below the top of the module")
        if isinstance(node, ast.Name | ast.Attribute) and "TYPE_CHECKING" in ast.unparse(node).split("."):
            problems.append(f"{path}:{node.lineno}: a TYPE_CHECKING block")
    room, *rest_of_path = Path(path).with_suffix("").parts
    if path == "__init__.py":
        return problems
    folder = rest_of_path[0] if len(rest_of_path) == 2 and room in FOLDERS else ""
    if len(rest_of_path) == 1 and rest_of_path[0] in FOLDERS.get(room, {}):
        folder = rest_of_path[0]
    if folder and folder not in FOLDERS[room]:
        problems.append(f"{path}: the folder {folder!r} is not in the table of folders")
    imported_by_folders = any(rest_of_path[0] in below for below in FOLDERS.get(room, {}).values())
    beneath = not folder and len(rest_of_path) == 1 and imported_by_folders
    if room not in LOWER_ROOMS:
        return [*problems, f"{path}: the room {room!r} is not in the table of rooms"]
    for line, name in imports_of(tree, path):
        top, _, rest = name.partition(".")
        if top == "toolspeak":
            other = rest.partition(".")[0]
            if other != room and other not in LOWER_ROOMS[room]:
                problems.append(f"{path}:{line}: {room} must not import {name}")
            inner = rest.partition(".")[2].partition(".")[0]
            if other == room and beneath and inner in FOLDERS[room]:
                problems.append(f"{path}:{line}: folders of {room} import this file, so it must not import {name}")
            if other == room and folder and inner != folder and inner not in FOLDERS[room].get(folder, set()):
                problems.append(f"{path}:{line}: {room}/{folder} must not import {name}")
        elif room in LIBRARIES and top not in sys.stdlib_module_names and top not in LIBRARIES[room]:
            problems.append(f"{path}:{line}: {room} is standard library only, not {name}")
        elif room in SANS_IO and top in IMPURE:
            problems.append(f"{path}:{line}: {room} is sans-IO and must not import {name}")
    return problems


def sources() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


@pytest.mark.parametrize("path", [str(path.relative_to(SOURCE)) for path in sources()])
def test_a_source_file_keeps_the_rules(path: str):
    assert violations(path, (SOURCE / path).read_text(encoding="utf-8")) == []


def full_folders(paths: Iterable[str]) -> list[str]:
    """The folders that hold too many Python files, each with their number; `paths` are those of all files."""
    files = Counter(str(Path(path).parent) for path in paths if Path(path).name != "__init__.py")
    return [
        f"{folder}: {number} files, more than {MAX_FILES}" for folder, number in files.items() if number > MAX_FILES
    ]


def test_no_folder_holds_too_many_files():
    assert full_folders(str(path.relative_to(SOURCE)) for path in sources()) == []


def test_a_folder_with_one_file_too_many_is_named():
    files = [f"chat/display/x{number}.py" for number in range(MAX_FILES)]
    assert full_folders(["chat/display/__init__.py", *files, "chat/x.py"]) == []
    assert full_folders([*files, "chat/display/x.py"]) == ["chat/display: 26 files, more than 25"]


def test_execute_and_journal_never_meet():
    assert "journal" not in LOWER_ROOMS["execute"]
    assert "execute" not in LOWER_ROOMS["journal"]


def test_the_table_has_no_cycle_below_the_edges():
    order: list[str] = []
    rest = {room: below - {room} for room, below in LOWER_ROOMS.items() if room in CORE}
    while rest:
        free = [room for room, below in rest.items() if below <= set(order)]
        assert free, f"a cycle among {sorted(rest)}"
        order += free
        rest = {room: below for room, below in rest.items() if room not in order}


VIOLATIONS = [
    ("data/x.py", "from toolspeak.tools import tool", "data must not import toolspeak.tools"),
    ("data/x.py", "import pydantic", "standard library only"),
    ("errors.py", "import httpx2.x", "standard library only"),
    ("dialects/x.py", "import toolspeak.providers.base", "dialects must not import toolspeak.providers.base"),
    ("dialects/x.py", "from asyncio import sleep", "sans-IO"),
    ("wire/x.py", "import os.path", "sans-IO"),
    ("wire/x.py", "from toolspeak.dialects.base import Parser", "wire must not import"),
    ("agent/state/x.py", "from toolspeak.agent.run import Run", "agent/state must not import toolspeak.agent.run"),
    ("agent/drivers/x.py", "import toolspeak.agent.state.fold", "agent/drivers must not import"),
    (
        "wire/gemini/x.py",
        "from toolspeak.wire.ollama import OLLAMA",
        "wire/gemini must not import toolspeak.wire.ollama",
    ),
    ("wire/base.py", "from toolspeak.wire.gemini import GEMINI", "folders of wire import this file"),
    ("dialects/text/x.py", "from toolspeak.dialects.readers.body import Body", "dialects/text must not import"),
    ("dialects/base.py", "from toolspeak.dialects.models.hermes import HERMES", "dialects/base must not import"),
    ("dialects/prompt.py", "from toolspeak.dialects.text.scan import Caps", "folders of dialects import this file"),
    ("execute/calls/x.py", "from toolspeak.execute.executor import Executor", "execute/calls must not import"),
    (
        "cli/signals.py",
        "import toolspeak.cli.run_commands.run_command",
        "folders of cli import this file",
    ),
    ("tools/web/x.py", "import toolspeak.tools.builtin", "tools/web must not import toolspeak.tools.builtin"),
    ("tools/files/x.py", "from toolspeak.tools import tool", "tools/files must not import toolspeak.tools"),
    ("project/user_files/x.py", "import toolspeak.project.folders", "project/user_files must not import"),
    (
        "chat/display/x.py",
        "from toolspeak.chat.terminal.front import ChatTerminal",
        "chat/display must not import toolspeak.chat.terminal.front",
    ),
    ("agent/recording/x.py", "import toolspeak.agent.run", "agent/recording must not import toolspeak.agent.run"),
    ("agent/handoffs.py", "import toolspeak.agent.recording.recorder", "agent/handoffs must not import"),
    (
        "cli/json_input.py",
        "import toolspeak.cli.run_commands.run_command",
        "cli/json_input must not import toolspeak.cli.run_commands.run_command",
    ),
    ("agent/x/y.py", "import toolspeak.agent.run", "the folder 'x' is not in the table"),
    ("tools/builtin/x.py", "from ...execute import executor", "tools must not import toolspeak.execute"),
    ("tools/__init__.py", "from ..agent import loop", "tools must not import toolspeak.agent"),
    ("execute/x.py", "from toolspeak import journal", "execute must not import toolspeak.journal"),
    ("journal/x.py", "from .. import execute", "journal must not import toolspeak.execute"),
    ("agent/x.py", "from toolspeak import Agent", "agent must not import toolspeak.Agent"),
    ("agent/x.py", "import toolspeak", "agent must not import toolspeak"),
    ("testing/x.py", "from toolspeak.cli.main import main", "testing must not import"),
    ("ui/x.py", "from toolspeak.journal import base", "ui must not import"),
    ("attic/x.py", "", "the room 'attic' is not in the table"),
    ("cli/x.py", "def f():\n    import json", "x.py:2: an import below the top"),
    ("cli/x.py", "try:\n    import json\nexcept ImportError:\n    pass", "an import below the top"),
    ("cli/x.py", "import typing\nif typing.TYPE_CHECKING:\n    pass", "a TYPE_CHECKING block"),
    ("__init__.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    pass", "a TYPE_CHECKING block"),
    ("cli/x.py", "x = 1\n" * (MAX_LINES + 1), "421 lines, more than 420"),
]


@pytest.mark.parametrize(
    ("path", "text", "problem"), VIOLATIONS, ids=[f"{path}-{text[:40]}" for path, text, _ in VIOLATIONS]
)
def test_a_planted_violation_is_detected(path: str, text: str, problem: str):
    assert any(problem in line for line in violations(path, text)), violations(path, text)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (
            "dialects/x.py",
            "import json\nfrom .scan import y\nfrom ..data import messages\nfrom toolspeak import errors",
        ),
        ("providers/x.py", "import asyncio\nimport httpx2\nfrom toolspeak.wire.openai_chat import ChunkDecoder"),
        ("__init__.py", "from toolspeak.agent import Agent\nimport rich"),
        ("cli/x.py", "from toolspeak.gateway import app\n" + "x = 1\n" * (MAX_LINES - 1)),
    ],
)
def test_what_is_allowed_is_not_reported(path: str, text: str):
    assert violations(path, text) == []


# --- a name means one thing ----------------------------------------------------------------------------------------

SAME_FILES = {
    "__init__.py": "a package has one",
    "base.py": "the protocol of a room",
    "common.py": "the folders of wire/ have the same files, one an API",
    "request_reader.py": "as common.py",
    "request_writer.py": "as common.py",
    "response_reader.py": "as common.py",
    "response_writer.py": "as common.py",
}
"""File names that stand in several folders, with the reason."""

IRREGULAR_PARTICIPLES = frozenset([
    "begun", "bent", "bitten", "blown", "borne", "bought", "broken", "brought", "built", "caught", "chosen", "dealt",
    "done", "drawn", "driven", "drunk", "eaten", "fallen", "felt", "flown", "forbidden", "forgotten", "fought", "found",
    "frozen", "given", "gone", "gotten", "grown", "heard", "held", "hidden", "hung", "hurt", "kept", "known", "laid",
    "led", "left", "lent", "lit", "lost", "made", "meant", "met", "overridden", "paid", "proven", "rebuilt",
    "rewritten", "said", "seen", "sent", "shaken", "shot", "shown", "shrunk", "slept", "sold", "spelt", "spent",
    "spoilt", "spoken", "stolen", "stood", "struck", "stuck", "sunk", "swept", "sworn", "taken", "taught", "thrown",
    "told", "torn", "unbound", "understood", "undone", "unknown", "unseen", "woken", "won", "worn", "wound", "woven",
    "written",
])  # fmt: skip

NO_PARTICIPLES = frozenset([
    "bed", "bleed", "breed", "deed", "embed", "exceed", "feed", "need", "proceed", "red", "seed", "shed", "speed",
    "succeed", "weed",
    "expected",  # of a test, beside `actual`
])  # fmt: skip
"""Words that end as a participle and are none, and the one that is a term of the field."""

STORED_FIELDS = {
    *(("data/deltas.py", name) for name in ("selected",)),
    *(("data/events.py", name) for name in ("replaced", "ignored", "forged", "changed", "cleared", "pinned")),
    *(("data/messages.py", name) for name in ("structured", "cached")),
    *(("data/prices.py", name) for name in ("cached",)),
    *(("data/run_values.py", name) for name in ("used", "allowed")),
    *(("gateway/usage/usage_values.py", name) for name in ("refused", "cached", "malformed")),
    *(("journal/base.py", name) for name in ("created", "updated")),
    *(("web_ui/api_values.py", name) for name in ("created", "updated", "cached")),
    *(("web_ui/gateway_values.py", name) for name in ("malformed", "forged", "repeated", "queued", "rejected")),
    *(("web_ui/reply_readings.py", name) for name in ("completed", "malformed")),
    *(("tests/clients/python/cases.py", name) for name in ("repeated",)),
}
"""Fields that journals, databases, cassettes and JSON hold under these names, by file."""


def places_of(names: Iterator[tuple[str, str]]) -> dict[str, list[str]]:
    """The names that are in more than one place, each with its places."""
    places: dict[str, list[str]] = {}
    for name, place in names:
        places.setdefault(name, []).append(place)
    return {name: where for name, where in places.items() if len(where) > 1}


def types_named(text: str) -> Iterator[str]:
    """The classes and type aliases that a file names at its top level."""
    for node in ast.parse(text).body:
        match node:
            case ast.ClassDef(name=name):
                yield name
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation):
                if ast.unparse(annotation).endswith("TypeAlias"):
                    yield name
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Subscript() | ast.BinOp(op=ast.BitOr())):
                # `Kind = Literal["a", "b"]`; a constant is in capitals.
                if name.lstrip("_")[:1].isupper() and not name.isupper():
                    yield name
            case _:
                pass


def test_a_file_name_means_one_thing():
    places_by_name = places_of((path.name, str(path.relative_to(SOURCE))) for path in sources())
    assert {name: places for name, places in places_by_name.items() if name not in SAME_FILES} == {}


def test_the_name_of_a_type_means_one_thing():
    types = ((name, path) for path in sources() for name in types_named(path.read_text(encoding="utf-8")))
    assert places_of((name, str(path.relative_to(SOURCE))) for name, path in types) == {}


@pytest.mark.parametrize(
    "text",
    [
        "class Answer: ...",
        'Answer = Literal["yes", "no"]',
        "Answer = int | str",
        "Answer = Callable[[int], str]",
        "Answer: TypeAlias = int",
        "Answer: typing.TypeAlias = int",
    ],
)
def test_every_kind_of_type_is_detected(text: str):
    assert list(types_named(text)) == ["Answer"]


def test_a_constant_is_not_a_type():
    assert list(types_named("ANSWER = 1 | 2\nANSWERS = TABLE[1]\nanswer = a[1]\nAnswer = make()")) == []


def identifiers(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and name of everything that a file gives a name to."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield node.lineno, name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield node.lineno, name
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.ExceptHandler(name=str(name)):
                yield node.lineno, name
            case ast.alias(asname=str(name)):
                yield node.lineno, name
            case _:
                pass


def flags(tree: ast.AST) -> Iterator[str]:
    """The fields, parameters and results that are declared as `bool`. There, a participle says whether."""
    for node in ast.walk(tree):
        match node:
            case ast.AnnAssign(target=ast.Name(id=name) | ast.Attribute(attr=name), annotation=type_of):
                pass
            case ast.arg(arg=name, annotation=type_of):
                pass
            case ast.FunctionDef(name=name, returns=type_of) | ast.AsyncFunctionDef(name=name, returns=type_of):
                pass
            case _:
                continue
        if type_of is not None and ast.unparse(type_of) in ("bool", "bool | None"):
            yield name


def is_participle(name: str) -> bool:
    """Whether a name is a bare past participle. One of several words is none."""
    word = name.strip("_")
    if "_" in word or (word != word.upper() and any(char.isupper() for char in word[1:])):
        return False
    word = word.lower()
    return word in IRREGULAR_PARTICIPLES or (word.endswith("ed") and word not in NO_PARTICIPLES)


def participles(path: str, text: str) -> list[str]:
    """The identifiers of a file that are participles and not nouns. `path` is relative to the package or the tree."""
    tree = ast.parse(text)
    declared_flags = set(flags(tree))
    names = [(0, Path(path).stem), *(each for each in identifiers(tree) if each[1] not in declared_flags)]
    return [
        f"{path}:{line}: {name}" for line, name in names if is_participle(name) and (path, name) not in STORED_FIELDS
    ]


@pytest.mark.parametrize("room", sorted(LOWER_ROOMS))
def test_identifiers_are_nouns(room: str):
    """`found` says that something was found, but not what. `match`, `run` and `lines` say it."""
    paths = [str(path.relative_to(SOURCE)) for path in sources()]
    of_room = [path for path in paths if Path(path).with_suffix("").parts[0] == room]
    assert [each for path in of_room for each in participles(path, (SOURCE / path).read_text("utf-8"))] == []


def programs_of(folder: Path) -> list[Path]:
    """The Python files below a folder of the repository, without those that a package manager installed."""
    return sorted(path for path in folder.rglob("*.py") if "node_modules" not in path.parts)


@pytest.mark.parametrize("folder", ["benchmarks", "contrib", "docs", "examples", "fuzz", "tests"])
def test_identifiers_outside_of_the_package_are_nouns_too(folder: str):
    root = SOURCE.parents[1]
    paths = programs_of(root / folder)
    assert paths
    assert [
        each for path in paths for each in participles(str(path.relative_to(root)), path.read_text(encoding="utf-8"))
    ] == []


@pytest.mark.parametrize(
    "text",
    [
        "found = 1",
        "def told(): ...",
        "class _Asked: ...",
        "def f(given): ...",
        "self._kept: int = 1",
        "LEFT = 1",
        "import json as seen",
        "for taken in (): ...",
        "try: ...\nexcept OSError as said: ...",
        "match 1:\n    case shown: ...",
        "started = True",
        "self.refused = False",
        "recorded: list[bool] = []",
        "def shortened(text: str) -> str: ...",
        "class Unsaid_: damaged = 1",
    ],
)
def test_a_planted_participle_is_detected(text: str):
    assert len(participles("cli/x.py", text)) == 1


def test_a_participle_inside_a_longer_name_is_allowed():
    assert (
        participles("cli/x.py", "files_read = left_margin = is_found = 1\nx.found.y = found()\nclass FoundIt: ...")
        == []
    )
    assert participles("cli/x.py", "seed = need = expected = 1") == []
    assert participles("cli/told.py", "") == ["cli/told.py:0: told"]


def test_a_declared_flag_may_be_a_participle():
    assert participles("cli/x.py", "class A:\n    started: bool = False\ndef f(*, named: bool): ...") == []


# --- the design names what is there ---------------------------------------------------------------------------------


ONE_LINE_FOR_ALL = {"dialects/models", "dialects/trained", *(f"cli/{folder}" for folder in COMMANDS_BY_FOLDER)}
"""Folders whose files are named by one rule, which the page of source files says in a sentence."""


def test_the_design_names_no_file_that_does_not_exist():
    root = SOURCE.parents[1]
    design = (root / "docs" / "design.md").read_text(encoding="utf-8")
    words_and_rooms = design[design.index("\n## 2. ") : design.index("\n## 4. ")]
    paths = [f"/{path.relative_to(root)}" for folder in (SOURCE, root / "tests") for path in folder.rglob("*.py")]
    names = re.findall(r"[^\w*./]([\w./]+\.py)\b", words_and_rooms)
    assert len(names) > 60
    assert [name for name in names if not any(path.endswith(f"/{name}") for path in paths)] == []


def test_the_design_names_every_folder_once():
    design = (SOURCE.parents[1] / "docs" / "design.md").read_text(encoding="utf-8")
    table = design[design.index("\n| room or folder |") : design.index("**Imports point down.**")]
    names = re.findall(r"^\| `([\w/]+)/` \|", table, re.MULTILINE)
    folders = {str(path.parent.relative_to(SOURCE)) for path in sources()} - {"."}
    assert sorted(names) == sorted(folder for folder in folders if not re.match(r"wire/.", folder))


def files_listed(page: str) -> Iterator[str]:
    """The files that the page of source files has a line for; `page` is its text."""
    for section in re.split(r"^##+ ", page, flags=re.MULTILINE)[1:]:
        title, _, text = section.partition("\n")
        folder = title.rstrip("/") + "/" if title.endswith("/") else ""
        own, *of_each_api = text.split("Each API has a folder")
        yield from (folder + name for name in re.findall(r"^\| `(\w+\.py)` \|", own, re.MULTILINE))
        for rest in of_each_api:
            apis = re.findall(r"`(\w+)/`", rest)
            names = re.findall(r"^\| `(\w+\.py)` \|", rest, re.MULTILINE)
            yield from (f"{folder}{api}/{name}" for api in apis for name in names)


def test_every_source_file_has_a_line():
    """An `__init__.py` needs none: its room or folder has one in the design."""
    page = (SOURCE.parents[1] / "docs" / "reference" / "source-files.md").read_text(encoding="utf-8")
    paths = [path for path in files_listed(page) if not path.endswith("/__init__.py")]
    there = [str(path.relative_to(SOURCE)) for path in sources()]
    expected = [
        path for path in there if not path.endswith("/__init__.py") and str(Path(path).parent) not in ONE_LINE_FOR_ALL
    ]
    assert sorted(paths) == sorted(expected)
    assert all(f"\n### {folder}/\n" in page for folder in ONE_LINE_FOR_ALL)


def test_the_design_names_no_function_that_does_not_exist():
    root = SOURCE.parents[1]
    design = (root / "docs" / "design.md").read_text(encoding="utf-8")
    references = re.findall(r"`([\w/]+\.py)` `([\w.]+)`", design)
    assert len(references) > 35
    missing: list[str] = []
    tests = programs_of(root / "tests")
    for path, name in references:
        (file,) = [*SOURCE.glob(path), *(file for file in tests if file.match(path))]
        tree: ast.AST = ast.parse(file.read_text(encoding="utf-8"))
        for part in name.split("."):
            definitions = {each.name: each for each in ast.iter_child_nodes(tree) if isinstance(each, _DEFINITIONS)}
            if part not in definitions:
                missing.append(f"{path}: {name}")
                break
            tree = definitions[part]
    assert missing == []


_DEFINITIONS = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


# --- importing does nothing --------------------------------------------------------------------------------------

IMPORT_ALL = """
import importlib, sys, threading
for name in sys.argv[1:]:
    importlib.import_module(name)
assert threading.active_count() == 1, threading.enumerate()
"""


FRAMEWORKS = {
    "langchain_tools", "openai_agents_tools", "pydantic_ai_tools", "pydantic_ai_toolset",
    "queue_engine", "restate_engine", "dbos_engine",
}  # fmt: skip
"""Modules that import a framework which the development environment does not have (`make test-adapters` and
`make test-engines`)."""


def python(cwd: Path, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-B", "-W", "error", "-c", code, *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=120)


def test_importing_every_module_prints_and_leaves_nothing(tmp_path: Path):
    left_out = FRAMEWORKS | {"__main__"}
    names = [module_of(str(path.relative_to(SOURCE))) for path in sources() if path.stem not in left_out]
    process = python(tmp_path, IMPORT_ALL, *names)
    assert (process.stdout, process.stderr, process.returncode) == ("", "", 0)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "module",
    [
        "toolspeak",
        "toolspeak.dialects",
        "toolspeak.data.codec",
        "toolspeak.wire.openai_chat",
        "toolspeak.providers.scripted_provider",
    ],
)
def test_a_light_module_loads_nothing_heavy(module: str, tmp_path: Path):
    process = python(tmp_path, f"import {module}, sys; print(*({{'httpx2', 'click', 'rich'}} & sys.modules.keys()))")
    assert (process.stdout.strip(), process.stderr) == ("", "")


def modules_after(tmp_path: Path, code: str) -> set[str]:
    process = python(tmp_path, f"{code}\nimport sys; print(*sys.modules)")
    assert process.stderr == ""
    return set(process.stdout.split())


def test_the_package_alone_loads_none_of_its_rooms(tmp_path: Path):
    modules = modules_after(tmp_path, "import toolspeak")
    assert {name for name in modules if name.startswith(("toolspeak.", "pydantic"))} == {"toolspeak.lazy"}


def test_the_version_is_read_only_on_demand(tmp_path: Path):
    assert toolspeak.__version__ == metadata.version("toolspeak")
    before, after = (modules_after(tmp_path, f"import toolspeak{more}") for more in ("", "; toolspeak.__version__"))
    assert "importlib.metadata" not in before
    assert "importlib.metadata" in after


HEAVY = {
    "sqlite3", "tomllib", "httpx2", "pathlib", "pydantic", "pydantic_core", "docstring_parser",
    "toolspeak.agent.cassettes.player", "toolspeak.agent.cassettes.cassette_writer", "toolspeak.dialects.catalogue",
    "toolspeak.journal.sqlite", "toolspeak.providers.families",
    "click", "rich",
}  # fmt: skip
"""What an agent needs for a model by name, a typed function, a file, a recording or a terminal alone."""


def test_an_agent_loads_nothing_that_its_run_does_not_need(tmp_path: Path):
    code = "from toolspeak import Agent, Toolset, tool; from toolspeak.testing import ScriptedProvider"
    modules = modules_after(tmp_path, "from toolspeak import Agent, Toolset, tool, MemoryJournal, Limits")
    assert modules & HEAVY == set()
    assert modules_after(tmp_path, code) & {"click", "rich", "httpx2"} == set()


def test_a_dialect_loads_no_other_dialect(tmp_path: Path):
    modules = modules_after(tmp_path, "from toolspeak.dialects import get_dialect; get_dialect('hermes')")
    assert "toolspeak.dialects.models.hermes" in modules
    others = {"catalogue", "detect", "cogency_json", "qwen3_coder", "harmony", "pythonic"}
    assert modules & {f"toolspeak.dialects.{name}" for name in others} == set()
    assert modules & {"asyncio", "pydantic", "pathlib"} == set()


PACKAGES = [
    "toolspeak",
    *(f"toolspeak.{room}" for room in ("dialects", "journal", "mcp", "providers", "tools.pydantic_support")),
]


@pytest.mark.parametrize("name", PACKAGES)
def test_the_stub_of_a_package_names_what_the_package_gives(name: str):
    """Type checkers read the stub. Programs read the table of places."""
    package = importlib.import_module(name)
    stub = ast.parse(Path(str(package.__file__)).with_suffix(".pyi").read_text(encoding="utf-8"))
    modules = {
        alias.name: node.module for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    exports = next(ast.literal_eval(node.value) for node in stub.body if isinstance(node, ast.Assign))
    assert sorted(modules) == sorted(exports) == sorted(package.__all__)
    assert set(modules) <= set(dir(package))
    for each, module in modules.items():
        assert getattr(package, each) is getattr(importlib.import_module(str(module)), each)
    with pytest.raises(AttributeError, match="no attribute 'Agnt'"):
        _ = package.Agnt


@pytest.mark.parametrize("name", PACKAGES)
def test_no_module_hides_a_name_of_its_package(name: str):
    """The import of a submodule sets the package's attribute of that name."""
    package = importlib.import_module(name)
    modules = {path.stem for path in Path(str(package.__file__)).parent.glob("*") if path.stem != "__init__"}
    assert modules.isdisjoint(package.__all__)
