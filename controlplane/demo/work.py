"""Functions that the demo's workers run. They do nothing useful, for various times. Each gets the job's payload."""

import time
from typing import Any

from controlplane.agent import progress


def resize_pictures(payload: dict[str, Any]) -> dict[str, Any]:
    """Resize two pictures a second."""
    for number in range(1, payload["pictures"] + 1):
        time.sleep(0.5)
        print(f"picture {number} of {payload['pictures']}", flush=True)  # noqa: T201
        progress(number / payload["pictures"], f"picture {number}")
    return {"resized": payload["pictures"]}


def send_invoice(payload: dict[str, Any]) -> dict[str, Any]:
    """Send an invoice in a second, or fail if the mail server refuses the customer."""
    time.sleep(1)
    if is_refused(payload["customer"]):
        raise ConnectionError(f"The mail server refused the invoice of customer {payload['customer']}")
    return {"sent_to": payload["customer"]}


def is_refused(customer: int) -> bool:
    """Return True for one customer in a hundred. So few failures leave the overview's verdict green."""
    return customer % 100 == 13


def yearly_report(payload: dict[str, Any]) -> dict[str, Any]:
    """Add up one month a second."""
    for month in range(1, 13):
        time.sleep(1)
        print(f"{payload['year']}-{month:02} added up", flush=True)  # noqa: T201
        progress(month / 12, f"{payload['year']}-{month:02} added up")
    return {"year": payload["year"], "total": 12 * payload["year"]}


def count_stock(payload: dict[str, Any]) -> dict[str, Any]:
    """Count two shelves a second."""
    for shelf in range(1, payload["shelves"] + 1):
        time.sleep(0.5)
        progress(shelf / payload["shelves"], f"shelf {shelf}")
    return {"shelves": payload["shelves"]}


def new_orders(payload: dict[str, Any] | None) -> dict[str, Any]:
    """Return the evaluation of a trigger: there are orders in every other quarter of a minute."""
    quarter = int(time.time() // 15)
    return {"fire": quarter % 2 == 0, "inputs": {"orders": quarter % 10 + 1}}
