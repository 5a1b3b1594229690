"""Executions and the trigger of the demo: steps that depend on each other, a child, hooks, a schedule."""

from collections.abc import Iterator
from itertools import count
from typing import Any

from controlplane.demo.shift import Job, callable_job, script_job, yearly_report_job

Execution = dict[str, Any]
FAILURE_HOOK = {"key": "report_failure", **script_job("cat")}
"""Hook that gets the failed steps as JSON."""


def depending_on(*needs: str) -> dict[str, list[str]]:
    return {"depends_on": list(needs)}


def child_execution(name: str, *steps: Job, **fields: Any) -> Job:
    return {"action": {"type": "execution", "name": name, "steps": list(steps)}, **fields}


def printing_job() -> Job:
    return child_execution(
        "printing",
        {"key": "typeset", **script_job("echo set; sleep 3")},
        {"key": "bind", **script_job("echo bound; sleep 2"), **depending_on("typeset")},
    )


def yearly_closing_execution(year: int) -> Execution:
    """Return an execution whose first step is long enough for the accident."""
    return {
        "name": f"closing of {year}",
        "steps": [
            {"key": "report", **yearly_report_job(year)},
            {"key": "stock", **callable_job("count_stock", shelves=14)},
            {"key": "print", **printing_job(), **depending_on("report", "stock")},
            {"key": "send", **callable_job("send_invoice", customer=year), **depending_on("print")},
            {"key": "archive", **script_job("echo kept; sleep 1"), **depending_on("print")},
        ],
        "on_error": [FAILURE_HOOK],
    }


def evening_execution(round_: int) -> Execution:
    """Return an execution like a company's evening work. In about one of a hundred, the invoice is refused."""
    return {
        "name": f"evening {round_}",
        "steps": [
            {"key": "count", **callable_job("count_stock", shelves=8)},
            {"key": "pictures", **callable_job("resize_pictures", pictures=6)},
            {
                "key": "invoice",
                **callable_job("send_invoice", customer=round_),
                **depending_on("count", "pictures"),
            },
            {"key": "print", **printing_job(), **depending_on("count")},
            {"key": "post", **script_job("echo in the letter box"), **depending_on("invoice", "print")},
        ],
        "on_error": [FAILURE_HOOK],
    }


def demo_executions() -> Iterator[Execution]:
    return map(evening_execution, count(1))


ORDERS: dict[str, Any] = {
    "name": "orders of the demo",
    "interval_seconds": 15,
    "missed": "skip",
    **callable_job("new_orders"),
    "execution": {
        "name": "orders",
        "steps": [
            {"key": "pack", **script_job("cat; sleep 2")},
            {"key": "ship", **script_job("echo gone"), **depending_on("pack")},
        ],
    },
}
"""Trigger whose evaluation starts an execution every other time."""
