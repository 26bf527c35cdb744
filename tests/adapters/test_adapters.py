"""The package of the adapters without any framework."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from toolspeak import adapters


@pytest.mark.parametrize(
    ("name", "module", "extra"),
    [
        ("to_langchain", "langchain", "langchain"),
        ("from_pydantic_ai", "pydantic_ai", "pydantic-ai"),
        ("to_pydantic_ai", "pydantic_ai", "pydantic-ai"),
        ("from_openai_agents", "agents", "openai-agents"),
    ],
)
def test_without_its_framework_an_adapter_names_the_extra(name, module, extra):
    code = f"""
import sys
import toolspeak.adapters
assert not {{"langchain", "pydantic_ai", "agents"}} & sys.modules.keys()
sys.modules[{module!r}] = None
try:
    toolspeak.adapters.{name}
except toolspeak.ConfigurationError as error:
    print(error)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert f"pip install 'toolspeak[{extra}]'" in run.stdout


def test_the_stub_names_what_the_package_gives():
    stub = ast.parse(Path(str(adapters.__file__)).with_suffix(".pyi").read_text("utf-8"))
    imports = {
        alias.name: node.module for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    (exports,) = [ast.literal_eval(node.value) for node in stub.body if isinstance(node, ast.Assign)]
    assert sorted(imports) == sorted(exports) == sorted(adapters.__all__)
    assert imports == adapters._PLACES
