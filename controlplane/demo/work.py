"""What the workers of the demo do: nothing useful, in various lengths. Each is called with the job's payload."""

import time
from typing import Any

from controlplane.agent import progress


def resize_pictures(payload: dict[str, Any]) -> dict[str, Any]:
    """Two pictures a second."""
    for number in range(1, payload["pictures"] + 1):
        time.sleep(0.5)
        print(f"picture {number} of {payload['pictures']}", flush=True)  # noqa: T201
        progress(number / payload["pictures"], f"picture {number}")
    return {"resized": payload["pictures"]}


def send_invoice(payload: dict[str, Any]) -> dict[str, Any]:
    """Fails for customers whose number ends in 3."""
    time.sleep(1)
    if payload["customer"] % 10 == 3:
        raise ConnectionError(f"the mail server refused the invoice of customer {payload['customer']}")
    return {"sent_to": payload["customer"]}


def yearly_report(payload: dict[str, Any]) -> dict[str, Any]:
    """A second for each month."""
    for month in range(1, 13):
        time.sleep(1)
        print(f"{payload['year']}-{month:02} is added up", flush=True)  # noqa: T201
        progress(month / 12, f"{payload['year']}-{month:02} is added up")
    return {"year": payload["year"], "total": 12 * payload["year"]}


def count_stock(payload: dict[str, Any]) -> dict[str, Any]:
    """Two shelves a second."""
    for shelf in range(1, payload["shelves"] + 1):
        time.sleep(0.5)
        progress(shelf / payload["shelves"], f"shelf {shelf}")
    return {"shelves": payload["shelves"]}


def new_orders(payload: dict[str, Any] | None) -> dict[str, Any]:
    """What the evaluation of a trigger answers: every other quarter of a minute there are orders."""
    quarter = int(time.time() // 15)
    return {"fire": quarter % 2 == 0, "inputs": {"orders": quarter % 10 + 1}}
