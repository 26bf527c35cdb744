"""`toolspeak --help` names every environment variable that the program reads."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

import toolspeak
from toolspeak.cli.environment_variables import VARIABLES
from toolspeak.cli.main import cli
from toolspeak.providers.compatible import COMPATIBLE
from toolspeak.tools.builtin.shell import INHERITED_VARIABLES

SOURCE = Path(toolspeak.__file__).parent
_OURS = re.compile(
    r"(?:TOOLSPEAK|OTEL|SSL_CERT|PROMETHEUS)_[A-Z_]+|[A-Z]+(?:_[A-Z]+)*_(?:API_KEY|API_TOKEN|BASE_URL|HOST)"
)
_OF_LIBRARIES = {
    "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "NO_COLOR", "FORCE_COLOR", "TERM", "COLUMNS", "LINES",
    "XDG_CONFIG_HOME", "XDG_DATA_HOME", "HOME",
}  # fmt: skip


_SET_FOR_COMMANDS = {"TOOLSPEAK_PROJECT_DIR"}
"""What a command of the user's gets, and the program does not read."""


def names_read(text: str) -> Iterator[str]:
    """The names of variables in a file's code: what an environment is asked for, `envvar`, and names in their form."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Call(
                func=ast.Attribute(value=environ, attr="get" | "pop"), args=[ast.Constant(value=str(name)), *_]
            ):
                if ast.unparse(environ).endswith(("environ", "variables")):
                    yield name
            case ast.Subscript(value=environ, slice=ast.Constant(value=str(name))):
                if ast.unparse(environ).endswith("environ"):
                    yield name
            case ast.Call(
                func=ast.Name(id="getenv") | ast.Attribute(attr="getenv"), args=[ast.Constant(value=str(name)), *_]
            ):
                yield name
            case ast.keyword(arg="envvar", value=ast.Constant(value=str(name))):
                yield name
            case ast.Constant(value=str(name)) if _OURS.fullmatch(name):
                yield name
            case _:
                pass


@pytest.mark.over_a_second
def test_the_help_names_every_variable_and_no_other():
    names_listed = [name for names in VARIABLES for name in names.split(", ")]
    assert len(names_listed) == len(set(names_listed))
    files = [path for path in SOURCE.rglob("*.py") if path.name != "environment_variables.py"]
    names = {name for path in files for name in names_read(path.read_text(encoding="utf-8"))}
    names |= {each.url_variable for each in COMPATIBLE.values()}
    assert sorted(names - set(names_listed) - _SET_FOR_COMMANDS) == []
    assert sorted(set(names_listed) - names - _OF_LIBRARIES - set(INHERITED_VARIABLES)) == []
    text = CliRunner().invoke(cli, ["--help"]).output
    assert [name for name in names_listed if name not in text] == []


def test_each_way_to_read_a_variable_is_noticed():
    code = 'os.environ.get("A")\nenviron["B"]\noption(envvar="C")\nos.getenv("D")\nX = "E_API_KEY"\ntable.get("F")'
    assert sorted(names_read(code)) == [*"ABCD", "E_API_KEY"]
