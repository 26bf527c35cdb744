"""Draws docs/images/terminal.svg: a run is killed and resumed. `--check` compares the picture with what is printed now.

The picture holds what the commands print. Only the name of the temporary folder is replaced.
"""

from __future__ import annotations

import html
import io
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

PICTURE = Path(__file__).parent / "images" / "terminal.svg"
COLUMNS = 92
FOLDER = "~/shop"


def turn(text: str, tool: str, **arguments: str) -> str:
    return f"{text}\n<execute>{json.dumps([{'name': tool, 'args': arguments}])}</execute>"


TURNS = [
    turn("I order the pears.", "append", path="orders.txt", content="20 pears\n"),
    turn("Now I check the list.", "shell", command="sh check.sh"),
    turn("The order is there. A check changes nothing, so I repeat it.", "shell", command="sh check.sh"),
    "20 pears are ordered, once.",
]
FILES = {
    "orders.txt": "3 apples\n",
    # The first run writes to the pipe `gate` and waits there until somebody opens it.
    "check.sh": "[ -p gate ] && { echo started >gate; read _ <gate; exit; }\ngrep -c pears orders.txt\n",
    "model.json": json.dumps({"turns": TURNS, "follow": True}),
}
RUN = ["toolspeak", "run", "Order 20 pears.", "--model", "scripted:model.json", "--approve", "all"]

SVG = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">
<title>toolspeak in a terminal: a run is killed and resumed</title>
<style>
text {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: {char_height}px; }}
{styles}
</style>
<defs>{lines}</defs>
<rect width="100%" height="100%" rx="8" fill="#191919"/>
<g transform="translate(14, 12)">{backgrounds}{matrix}</g>
</svg>
"""


def terminal_text(folder: Path) -> str:
    """The terminal after the whole session, with its colours."""
    bin_folder = Path(sys.executable).parent
    environment = {"PATH": f"{bin_folder}:/usr/bin:/bin", "HOME": str(folder), "LANG": "C.UTF-8"}
    environment |= {"TOOLSPEAK_JOURNAL": str(folder / "journal.db"), "FORCE_COLOR": "1", "COLUMNS": str(COLUMNS)}
    shop = folder / "shop"
    shop.mkdir()
    for name, text in FILES.items():
        (shop / name).write_text(text, encoding="utf-8")
    gate = shop / "gate"
    os.mkfifo(gate)

    def start(*command: str) -> subprocess.Popen[str]:
        # Progress goes to standard error, and includes the answer.
        return subprocess.Popen(
            command, cwd=shop, env=environment, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )

    run_process = start(*RUN)
    gate.read_text(encoding="utf-8")
    run_process.send_signal(signal.SIGKILL)
    first = run_process.communicate()[1]
    with suppress(OSError):  # a command in a sandbox has died with the run
        os.close(os.open(gate, os.O_WRONLY | os.O_NONBLOCK))
    gate.unlink()
    resume_output = start("toolspeak", "resume").communicate()[1]
    orders = (shop / "orders.txt").read_text(encoding="utf-8")
    prompt = "\x1b[1;32m$\x1b[0m "
    first_command = f'{prompt}toolspeak run "{RUN[2]}" {" ".join(RUN[3:])}\n'
    dead = f"\x1b[1;31m{signal.strsignal(signal.SIGKILL)}\x1b[0m\n"
    session = f"{first_command}{first}{dead}{prompt}toolspeak resume\n{resume_output}{prompt}cat orders.txt\n{orders}"
    return session.replace(str(shop.resolve()), FOLDER).replace(str(shop), FOLDER)


def draw(session: str) -> str:
    """The picture of a terminal's text, as SVG that loads nothing."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(session), end="")
    return console.export_svg(title="", theme=DIMMED_MONOKAI, code_format=SVG, unique_id="t")


def comparable(picture: str) -> list[str]:
    """The words of a picture, without what differs from run to run: the id, and the figures of the last line."""
    words = html.unescape(" ".join(re.findall(r"<text[^>]*>([^<]*)</text>", picture))).split()
    text = re.sub(r"resuming [0-9a-f]{8}", "resuming ID", " ".join(words))
    return re.sub(r"~[\d,]+ tokens, [\d.]+ s", "TOKENS, SECONDS", text).split()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        new = draw(terminal_text(Path(temporary)))
    if sys.argv[1:] != ["--check"]:
        PICTURE.write_text(new, encoding="utf-8")
    elif comparable(PICTURE.read_text(encoding="utf-8")) != comparable(new):
        sys.exit(f"{PICTURE} shows something else than what is printed now: python docs/terminal_picture.py draws it")
