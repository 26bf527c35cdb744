"""The demo's project with a bug, and the playbook of the model that finds it."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Sequence
from typing import Any

from toolspeak.data.messages import Message, TextPart, ToolCall
from toolspeak.data.tools import ToolSpec
from toolspeak.data.values import quick
from toolspeak.dialects import Dialect

TASK = "A test of this project fails. Find out why, fix it, and note the fix in CHANGES.md."

PRICES = '''\
"""Prices, in cents."""


def subtotal(items):
    """The sum over (price, quantity) pairs."""
    return sum(price * quantity for price, quantity in items)


def total(items, discount=0):
    """What is to be paid after a discount in percent."""
    amount = subtotal(items)
    return amount - amount * discount // 10
'''

TESTS = """\
import unittest

from shop.prices import subtotal, total


class PricesTest(unittest.TestCase):
    def test_subtotal(self):
        self.assertEqual(subtotal([(250, 2), (100, 5)]), 1000)

    def test_no_discount(self):
        self.assertEqual(total([(250, 4)]), 1000)

    def test_discount(self):
        self.assertEqual(total([(250, 4)], discount=15), 850)
"""

CHANGES = "# Changes\n\n- First version.\n"

FILES = {
    "shop/__init__.py": "",
    "shop/prices.py": PRICES,
    "tests/__init__.py": "",
    "tests/test_prices.py": TESTS,
    "CHANGES.md": CHANGES,
}
"""The project's files by path."""

_FIXED_LINE = "    return amount - amount * discount // 100\n"
_NOTE = "- A discount is taken in percent: `total` divides by 100, not by 10.\n"

FIXED_FILES = {
    **FILES,
    "shop/prices.py": PRICES.replace("    return amount - amount * discount // 10\n", _FIXED_LINE),
    "CHANGES.md": CHANGES + _NOTE,
}
"""The project's files after the fix."""

# -B: without it, the model would list and search bytecode files.
TEST_ARGUMENTS = (sys.executable, "-B", "-m", "unittest", "discover", "-t", ".", "-s", "tests")
TEST_COMMAND = shlex.join(TEST_ARGUMENTS)

ALIAS = "file"
"""A lenient name of the argument `path`, which a call of the playbook uses."""

# Quotations of real results: a wrong or missing result ends the demo. A quotation is text, which a dialect would
# render as a string, so a number in a call is a placeholder number at first.
_LINE_FOUND = 990_001
_QUOTATIONS = {str(_LINE_FOUND): r'{{find:"path": "shop/prices\.py", "line": (\d+)}}'}
_ASSERTION = r"{{find:AssertionError: (-?\d+ != \d+)}}"
_UNKNOWN_TOOL = r"{{find:no tool is called '(\w+)'}}"
_ALL_PASS = r"{{find:Ran (\d+) tests in [^\"]*OK}}"


@quick()
class DemoStep:
    """The text and the calls of a turn, before a dialect renders them."""

    text: str
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()
    fenced: bool = False
    """The calls are in a code fence."""


STEPS = (
    DemoStep(
        "I look around and run the tests.",
        (("list", {"prefix": "", "recursive": True}), ("shell", {"command": TEST_COMMAND})),
    ),
    DemoStep(
        f"One test fails: {_ASSERTION}. I look for the discount, and into the file.",
        (
            ("find", {"content": r"\* discount", "pattern": "*.py"}),
            ("read_file", {"path": "shop/prices.py"}),
        ),
    ),
    DemoStep(
        f"There is no tool {_UNKNOWN_TOOL}; `read` it is.",
        (("read", {ALIAS: "shop/prices.py"}),),
        fenced=True,
    ),
    DemoStep(
        f"Line {_QUOTATIONS[str(_LINE_FOUND)]} divides by 10, and a percentage is divided by 100. I fix that, note it, "
        "and run the tests again.",
        (
            (
                "line_edit",
                {
                    "path": "shop/prices.py",
                    "startLine": _LINE_FOUND,
                    "endLine": _LINE_FOUND,
                    "newContent": _FIXED_LINE,
                },
            ),
            (
                "edit",
                {"path": "CHANGES.md", "old": "- First version.\n", "new": f"- First version.\n{_NOTE}"},
            ),
            ("shell", {"command": TEST_COMMAND}),
        ),
    ),
    DemoStep(
        "Fixed: `total` took the discount in tenths instead of percent "
        f"(line {_QUOTATIONS[str(_LINE_FOUND)]} of shop/prices.py). All {_ALL_PASS} tests pass."
    ),
)
"""The playbook for every dialect. If a dialect allows one call per turn, a step becomes several turns."""

TOOLS_USED = frozenset(name for step in STEPS for name, _ in step.calls)


def playbook(dialect: Dialect, tools: Sequence[ToolSpec]) -> list[str]:
    """The model's turns in this dialect."""
    return [_render(turn, dialect, tools) for step in STEPS for turn in _turns(step, dialect)]


def _turns(step: DemoStep, dialect: Dialect) -> list[DemoStep]:
    size = dialect.batch.max_calls or max(1, len(step.calls))
    batches = [step.calls[i : i + size] for i in range(0, len(step.calls), size)] or [()]
    return [DemoStep(step.text if i == 0 else "", calls, step.fenced) for i, calls in enumerate(batches)]


def _render(step: DemoStep, dialect: Dialect, tools: Sequence[ToolSpec]) -> str:
    calls = tuple(ToolCall(f"call_{i}", name, arguments) for i, (name, arguments) in enumerate(step.calls))
    if not step.fenced:
        parts = (TextPart(step.text), *calls) if step.text else calls
        return _with_quotations(dialect.render([Message("assistant", parts)], tools)[0].text)
    block = _with_quotations(dialect.render([Message("assistant", calls)], tools)[0].text)
    return f"{step.text}\n```\n{block}\n```"


def _with_quotations(text: str) -> str:
    numbers = re.compile("|".join(_QUOTATIONS))
    return numbers.sub(lambda match: _QUOTATIONS[match[0]], text)
