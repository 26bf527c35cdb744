"""Shows where our prompt is not the template's: for whoever writes a template.

PYTHONPATH=tests/dialects CHAT_TEMPLATES=FOLDER python tests/templates/look.py NAME…    (of none: a line for each)
"""

from __future__ import annotations

import difflib
import sys

from chat_templates import folder
from comparison import Comparison, compare
from conversations import first_requests, requests_with_history
from template_levels import LEVELS

from toolspeak.dialects import known_dialect


def _show(comparison: Comparison) -> None:
    print(f"--- {comparison.case}: {comparison.level}  {comparison.error}")
    if comparison.level == "error":
        return
    theirs, ours = comparison.theirs.splitlines(keepends=True), comparison.ours.splitlines(keepends=True)
    sys.stdout.writelines(f"{line.rstrip()!r}\n" for line in difflib.unified_diff(theirs, ours, "theirs", "ours", n=1))


def main() -> None:
    names = sys.argv[1:]
    for path in sorted(folder().glob("*.jinja")):
        name = path.stem
        if names and name not in names:
            continue
        if known_dialect(LEVELS[name].model) is None:
            print(f"{name:48} {LEVELS[name].model:28} unknown model")
            continue
        row: list[str] = []
        for what, cases, tool_role in (
            ("first", first_requests(), False),
            ("history as user", requests_with_history(), False),
            ("history as tool", requests_with_history(), True),
        ):
            every = [compare(name, LEVELS[name].model, label, case, tool_role) for label, case in cases.items()]
            counts = {
                level: sum(comparison.level == level for comparison in every)
                for level in sorted({e.level for e in every})
            }
            row.append(f"{what}: {', '.join(f'{count} {level}' for level, count in counts.items())}")
            wrong = [comparison for comparison in every if comparison.level not in ("whole", "unwritten")]
            if names and wrong and (what != "history as tool" or tool_role):
                for comparison in wrong[:2]:
                    _show(comparison)
        print(f"{name:48} {LEVELS[name].model:28} {'; '.join(row)}")


if __name__ == "__main__":
    main()
