"""`toolspeak exec` on every example of the protocol documents: same calls, order, status and shape of results."""

from __future__ import annotations

import json

import pytest
from protocol_examples import EXAMPLES, PAGE, Example, page, run_example, shape

from forked_commands import completed_process
from toolspeak.dialects import get_dialect, read_turn
from toolspeak.tools.builtin import workspace_tools

# What may differ from one run to the next: the document has these calls race.
RACES = {"Complete example"}


@pytest.fixture(scope="module")
def outputs(tmp_path_factory) -> dict[Example, list[str]]:
    def run(arguments, reply):
        return completed_process(arguments, stdin=reply, cwd=tmp_path_factory.mktemp("elsewhere"))

    return {example: run_example(example, run) for example in EXAMPLES}


@pytest.mark.over_a_second
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: f"{example.dialect}: {example.title}")
def test_the_results_have_the_shown_names_order_and_status(example, outputs):
    for reply, output in zip(example.replies, outputs[example], strict=True):
        if reply.output is None:
            continue
        block = output.removeprefix("<results>\n").removesuffix("\n</results>\n")
        assert shape(json.loads(block)) == shape(reply.output)
        if not reply.deviation:
            assert json.loads(block) == reply.output


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: f"{example.dialect}: {example.title}")
def test_a_reply_without_calls_prints_nothing(example, outputs):
    for reply, output in zip(example.replies, outputs[example], strict=True):
        turn = read_turn(get_dialect(example.dialect), reply.text, workspace_tools(".").specs)
        assert bool(turn.calls) == bool(output)


def test_the_page_is_current(outputs):
    """Rewrite it with `python tests/protocols/protocol_examples.py`."""

    def comparable(text: str) -> list[str]:
        return [line for line in text.splitlines() if not any(f"| {title}, reply 2 |" in line for title in RACES)]

    assert comparable(PAGE.read_text("utf-8")) == comparable(page(outputs))
