"""What `toolspeak worker` loads in these tests: agents on the journal and the folder of the environment."""

import os
import time
from pathlib import Path

from shop import agent, pay

from toolspeak import Effects, tool
from toolspeak.journal import open_journal

FOLDER = Path(os.environ["SHOP_FOLDER"])
JOURNAL = open_journal(os.environ["TOOLSPEAK_JOURNAL"])


def line(text):
    with (FOLDER / "log").open("ab", buffering=0) as file:
        file.write(f"{os.getpid()} {text}\n".encode())


@tool(effects=lambda name: Effects(writes={f"file:{name}"}, idempotent=True))
def hold(name: str) -> str:
    "Takes until the file `name` is there: an effect that may run twice."
    line(f"enter {name}")
    while not (FOLDER / name).exists():
        time.sleep(0.02)
    line(f"leave {name}")
    return f"held {name}"


@tool(effects=lambda name: Effects(writes={f"line:{name}"}))
def once(name: str) -> str:
    "An effect that must not run twice."
    line(f"once {name}")
    return f"did {name}"


shop = agent(JOURNAL, [hold, once, pay], approve="all")
many = [shop, agent(JOURNAL, [pay], name="till")]


def agents_by_name():
    return {each.name: each for each in many}
