"""The executions and the trigger of the demo: steps that wait for each other, a child, hooks, a schedule."""

from collections.abc import Iterator
from itertools import count
from typing import Any

from controlplane.demo.shift import Job, call, script, yearly_report

Execution = dict[str, Any]
TELL = {"key": "tell", **script("cat")}
"""A hook is handed what failed, as JSON."""


def after(*needs: str) -> dict[str, list[str]]:
    return {"depends_on": list(needs)}


def child(name: str, *steps: Job, **said: Any) -> Job:
    return {"action": {"type": "execution", "name": name, "steps": list(steps)}, **said}


def printing() -> Job:
    return child(
        "printing",
        {"key": "typeset", **script("echo set; sleep 3")},
        {"key": "bind", **script("echo bound; sleep 2"), **after("typeset")},
    )


def yearly_closing(year: int) -> Execution:
    """Its first step is long enough to meet with an accident."""
    return {
        "name": f"closing of {year}",
        "steps": [
            {"key": "report", **yearly_report(year)},
            {"key": "stock", **call("count_stock", shelves=14)},
            {"key": "print", **printing(), **after("report", "stock")},
            {"key": "send", **call("send_invoice", customer=year), **after("print")},
            {"key": "archive", **script("echo kept; sleep 1"), **after("print")},
        ],
        "on_error": [TELL],
    }


def evening(round_: int) -> Execution:
    """Every second one fails: the mail server refuses customers whose number ends in 3."""
    return {
        "name": f"evening {round_}",
        "steps": [
            {"key": "count", **call("count_stock", shelves=8)},
            {"key": "pictures", **call("resize_pictures", pictures=6)},
            {"key": "invoice", **call("send_invoice", customer=3 if round_ % 2 else 4), **after("count", "pictures")},
            {"key": "print", **printing(), **after("count")},
            {"key": "post", **script("echo in the letter box"), **after("invoice", "print")},
        ],
        "on_error": [TELL],
    }


def executions() -> Iterator[Execution]:
    return map(evening, count(1))


ORDERS: dict[str, Any] = {
    "name": "orders of the demo",
    "interval_seconds": 15,
    "missed": "skip",
    **call("new_orders"),
    "execution": {
        "name": "orders",
        "steps": [
            {"key": "pack", **script("cat; sleep 2")},
            {"key": "ship", **script("echo gone"), **after("pack")},
        ],
    },
}
"""A trigger whose evaluation says every other time that there is something to do."""
