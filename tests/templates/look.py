"""Shows where our prompt is not the template's: for whoever writes a template.

PYTHONPATH=tests/dialects CHAT_TEMPLATES=FOLDER python tests/templates/look.py NAME…    (of none: a line for each)
"""

from __future__ import annotations

import difflib
import sys

from chat_templates import folder
from compared import Found, compared
from conversations import first_requests, requests_with_history
from template_levels import LEVELS

from toolspeak.dialects import known_dialect


def _show(found: Found) -> None:
    print(f"--- {found.case}: {found.level}  {found.error}")
    if found.level == "error":
        return
    theirs, ours = found.theirs.splitlines(keepends=True), found.ours.splitlines(keepends=True)
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
            every = [compared(name, LEVELS[name].model, label, case, tool_role) for label, case in cases.items()]
            counts = {level: sum(found.level == level for found in every) for level in sorted({e.level for e in every})}
            row.append(f"{what}: {', '.join(f'{count} {level}' for level, count in counts.items())}")
            wrong = [found for found in every if found.level not in ("whole", "unwritten")]
            if names and wrong and (what != "history as tool" or tool_role):
                for found in wrong[:2]:
                    _show(found)
        print(f"{name:48} {LEVELS[name].model:28} {'; '.join(row)}")


if __name__ == "__main__":
    main()
