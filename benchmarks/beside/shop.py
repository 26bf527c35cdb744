"""Shared by the three programs: the shop, the answer's type, and the place where the process dies.

KILL_AT names that place: `read`, `write` (after the effect) or `answer` (when the program requests the last turn).
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel

TASK = "Order 20 pears if we are out of them."


class Report(BaseModel):
    item: str
    quantity: int


def die_at(place: str) -> None:
    if os.environ.get("KILL_AT") == place:
        os.kill(os.getpid(), signal.SIGKILL)


def turn_of_the_model(results: int) -> str:
    """Returns what the scripted model does after a number of results. Counts each request in a file."""
    with Path("requests.txt").open("a", encoding="utf-8") as file:
        file.write("asked\n")
    turn = ("stock", "order", "answer")[results]
    die_at(turn)
    return turn


@dataclass
class Shop:
    orders: Path = Path("orders.txt")

    def stock(self, item: str) -> int:
        die_at("read")
        return {"apple": 3}.get(item, 0)

    def order(self, item: str, count: int) -> str:
        with self.orders.open("a", encoding="utf-8") as file:
            file.write(f"{count} {item}\n")
        die_at("write")
        return "ordered"

    def has_ordered(self, item: str, count: int) -> bool:
        return self.orders.exists() and f"{count} {item}" in self.orders.read_text(encoding="utf-8").splitlines()
