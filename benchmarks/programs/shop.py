"""A shop with its tools, and ten tasks that need several calls: as calls turn by turn, and as a program.

A task's `rounds` are what a careful model does without programs: the calls of each turn at once where they do not
depend on each other. Each round gets the values of the rounds before, and the last one gives the answer.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from toolspeak import Effects, Tool, tool

CITIES = ("Rome", "Oslo", "Lima", "Kyiv")
WORDS = [
    "delivered",
    "parcel",
    "window",
    "kitchen",
    "lamp",
    "invoice",
    "refund",
    "blue",
    "broken",
    "morning",
    "street",
    "courier",
]


class Shop:
    """The data, and what was changed."""

    def __init__(self) -> None:
        chance = random.Random(7)

        def text(words: int) -> str:
            return " ".join(chance.choice(WORDS) for _ in range(words))

        self.customers = {
            n: {"id": n, "name": f"Customer {n}", "city": CITIES[n % 4], "mail": f"c{n}@example.org", "note": text(20)}
            for n in range(1, 25)
        }
        self.products = {
            f"SKU-{n:03}": {
                "sku": f"SKU-{n:03}",
                "price": 5 + n * 3,
                "stock": n % 4,
                "group": "lamps" if n % 3 else "tables",
                "text": text(35),
            }
            for n in range(1, 31)
        }
        self.orders = {
            n: {
                "id": n,
                "customer": n % 24 + 1,
                "sku": f"SKU-{n % 30 + 1:03}",
                "amount": n % 3 + 1,
                "late": n % 7 == 0,
                "history": text(30),
            }
            for n in range(1, 73)
        }
        self.tickets = {
            n: {
                "id": n,
                "customer": n % 24 + 1,
                "status": "open" if n % 2 else "closed",
                "days": n * 5 % 31,
                "subject": WORDS[n % 5],
                "text": text(40),
            }
            for n in range(1, 41)
        }
        self.files = {
            f"src/part{n}.py": "\n".join([f"# {text(12)}"] * (n % 5 + 2) + ["# TODO: " + text(3)] * (n % 3))
            for n in range(16)
        }
        self.changes: list[str] = []

    def tools(self) -> list[Tool]:
        reads = Effects(reads={"shop:"}, idempotent=True)

        @tool(effects=reads)
        async def find_customers(city: str) -> list[dict[str, Any]]:
            """Finds the customers of a city.

            Args:
                city: The city's name.
            """
            return [each for each in self.customers.values() if each["city"] == city]

        @tool(effects=reads)
        async def list_orders(customer: int) -> list[int]:
            """The numbers of a customer's orders.

            Args:
                customer: The customer's number.
            """
            return [n for n, each in self.orders.items() if each["customer"] == customer]

        @tool(effects=reads)
        async def get_order(order: int) -> dict[str, Any]:
            """An order with its history.

            Args:
                order: The order's number.
            """
            return self.orders[order]

        @tool(effects=reads)
        async def list_products(group: str) -> list[str]:
            """The article numbers of a group: `lamps` or `tables`.

            Args:
                group: The group.
            """
            return [sku for sku, each in self.products.items() if each["group"] == group]

        @tool(effects=reads)
        async def get_product(sku: str) -> dict[str, Any]:
            """A product with its price, stock and description.

            Args:
                sku: The article number.
            """
            return self.products[sku]

        @tool(effects=lambda sku: Effects(writes={f"shop:product/{sku}"}, idempotent=True))
        async def set_price(sku: str, price: float) -> str:
            """Sets the price of a product.

            Args:
                sku: The article number.
                price: The new price.
            """
            self.changes.append(f"price {sku} {price:g}")
            return f"the price of {sku} is {price:g}"

        @tool(effects=lambda to: Effects(writes={f"mail:{to}"}, external=True))
        async def send_mail(to: str, subject: str, text: str) -> str:
            """Sends a mail.

            Args:
                to: The address.
                subject: The subject.
                text: The text.
            """
            self.changes.append(f"mail {to} {subject}")
            return "sent"

        @tool(effects=reads)
        async def list_tickets(status: str) -> list[int]:
            """The numbers of the tickets of a status: `open` or `closed`.

            Args:
                status: The status.
            """
            return [n for n, each in self.tickets.items() if each["status"] == status]

        @tool(effects=reads)
        async def get_ticket(ticket: int) -> dict[str, Any]:
            """A ticket with its text.

            Args:
                ticket: The ticket's number.
            """
            return self.tickets[ticket]

        @tool(effects=lambda ticket: Effects(writes={f"shop:ticket/{ticket}"}, idempotent=True))
        async def close_ticket(ticket: int, note: str) -> str:
            """Closes a ticket.

            Args:
                ticket: The ticket's number.
                note: Why.
            """
            self.changes.append(f"close {ticket}")
            return f"ticket {ticket} is closed"

        @tool(effects=reads)
        async def find_files(ending: str) -> list[str]:
            """The paths of the files that end so.

            Args:
                ending: The end of the name.
            """
            return [path for path in self.files if path.endswith(ending)]

        @tool(effects=reads)
        async def read_file(path: str) -> str:
            """The text of a file.

            Args:
                path: The path.
            """
            return self.files[path]

        return [
            *(find_customers, list_orders, get_order, list_products, get_product, set_price, send_mail),
            *(list_tickets, get_ticket, close_ticket, find_files, read_file),
        ]  # fmt: skip


Call = tuple[str, dict[str, Any]]
Round = Callable[..., Sequence[Call] | str]


@dataclass(frozen=True)
class Task:
    """A task, without programs (`rounds`) and as a program (`code`), which prints the same answer."""

    task: str
    rounds: Sequence[Round]
    code: str


def each(name: str, key: str, values: Sequence[Any]) -> list[Call]:
    return [(name, {key: value}) for value in values]


TASKS = [
    Task(
        "How many pieces has customer 5 ordered?",
        [
            lambda: [("list_orders", {"customer": 5})],
            lambda a: each("get_order", "order", a[0]),
            lambda a, b: str(sum(order["amount"] for order in b)),
        ],
        """
import asyncio
orders = await asyncio.gather(*[get_order(n) for n in await list_orders(5)])
print(sum(order["amount"] for order in orders))
""",
    ),
    Task(
        "How many orders do the customers in Rome have?",
        [
            lambda: [("find_customers", {"city": "Rome"})],
            lambda a: each("list_orders", "customer", [customer["id"] for customer in a[0]]),
            lambda a, b: str(sum(map(len, b))),
        ],
        """
import asyncio
customers = await find_customers("Rome")
print(sum(len(orders) for orders in await asyncio.gather(*[list_orders(c["id"]) for c in customers])))
""",
    ),
    Task(
        "Raise the prices of all tables by 10 percent. How many are there?",
        [
            lambda: [("list_products", {"group": "tables"})],
            lambda a: each("get_product", "sku", a[0]),
            lambda a, b: [("set_price", {"sku": p["sku"], "price": round(p["price"] * 1.1, 2)}) for p in b],
            lambda a, b, c: str(len(c)),
        ],
        """
import asyncio
products = await asyncio.gather(*[get_product(sku) for sku in await list_products("tables")])
await asyncio.gather(*[set_price(p["sku"], round(p["price"] * 1.1, 2)) for p in products])
print(len(products))
""",
    ),
    Task(
        "Which open ticket is the oldest?",
        [
            lambda: [("list_tickets", {"status": "open"})],
            lambda a: each("get_ticket", "ticket", a[0]),
            lambda a, b: str(max(b, key=lambda ticket: ticket["days"])["id"]),
        ],
        """
import asyncio
tickets = await asyncio.gather(*[get_ticket(n) for n in await list_tickets("open")])
print(max(tickets, key=lambda ticket: ticket["days"])["id"])
""",
    ),
    Task(
        "Write to each customer in Oslo who has a late order. To how many?",
        [
            lambda: [("find_customers", {"city": "Oslo"})],
            lambda a: each("list_orders", "customer", [customer["id"] for customer in a[0]]),
            lambda a, b: each("get_order", "order", [n for orders in b for n in orders]),
            lambda a, b, c: [
                ("send_mail", {"to": customer["mail"], "subject": "Your order", "text": "We are sorry: it is late."})
                for customer in a[0]
                if any(order["late"] and order["customer"] == customer["id"] for order in c)
            ],
            lambda a, b, c, d: str(len(d)),
        ],
        """
import asyncio
customers = await find_customers("Oslo")
numbers = await asyncio.gather(*[list_orders(c["id"]) for c in customers])
orders = await asyncio.gather(*[get_order(n) for some in numbers for n in some])
late = {order["customer"] for order in orders if order["late"]}
mails = [send_mail(c["mail"], "Your order", "We are sorry: it is late.") for c in customers if c["id"] in late]
print(len(await asyncio.gather(*mails)))
""",
    ),
    Task(
        "Close the open tickets about the lamp as duplicates. How many are there?",
        [
            lambda: [("list_tickets", {"status": "open"})],
            lambda a: each("get_ticket", "ticket", a[0]),
            lambda a, b: [
                ("close_ticket", {"ticket": t["id"], "note": "duplicate"}) for t in b if t["subject"] == "lamp"
            ],
            lambda a, b, c: str(len(c)),
        ],
        """
import asyncio
tickets = await asyncio.gather(*[get_ticket(n) for n in await list_tickets("open")])
lamps = [t["id"] for t in tickets if t["subject"] == "lamp"]
print(len(await asyncio.gather(*[close_ticket(n, "duplicate") for n in lamps])))
""",
    ),
    Task(
        "How many TODOs are in the Python files?",
        [
            lambda: [("find_files", {"ending": ".py"})],
            lambda a: each("read_file", "path", a[0]),
            lambda a, b: str(sum(text.count("TODO") for text in b)),
        ],
        """
import asyncio
texts = await asyncio.gather(*[read_file(path) for path in await find_files(".py")])
print(sum(text.count("TODO") for text in texts))
""",
    ),
    Task(
        "Which Python file is the longest?",
        [
            lambda: [("find_files", {"ending": ".py"})],
            lambda a: each("read_file", "path", a[0]),
            lambda a, b: max(zip(a[0], b, strict=True), key=lambda entry: len(entry[1]))[0],
        ],
        """
import asyncio
paths = await find_files(".py")
texts = await asyncio.gather(*[read_file(path) for path in paths])
print(max(zip(paths, texts), key=lambda entry: len(entry[1]))[0])
""",
    ),
    Task(
        "Which lamp in stock is the cheapest?",
        [
            lambda: [("list_products", {"group": "lamps"})],
            lambda a: each("get_product", "sku", a[0]),
            lambda a, b: min((p for p in b if p["stock"]), key=lambda p: p["price"])["sku"],
        ],
        """
import asyncio
products = await asyncio.gather(*[get_product(sku) for sku in await list_products("lamps")])
print(min((p for p in products if p["stock"]), key=lambda p: p["price"])["sku"])
""",
    ),
    Task(
        "What are the orders of customer 8 worth?",
        [
            lambda: [("list_orders", {"customer": 8})],
            lambda a: each("get_order", "order", a[0]),
            lambda a, b: each("get_product", "sku", [order["sku"] for order in b]),
            lambda a, b, c: str(sum(order["amount"] * p["price"] for order, p in zip(b, c, strict=True))),
        ],
        """
total = 0
for n in await list_orders(8):
    order = await get_order(n)
    total += order["amount"] * (await get_product(order["sku"]))["price"]
print(total)
""",
    ),
]  # fmt: skip
