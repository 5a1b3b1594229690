"""What the workers of the demo do: nothing useful, in various lengths. Each is called with the job's payload."""

import time
from typing import Any


def resize_pictures(payload: dict[str, Any]) -> dict[str, Any]:
    """Two pictures a second."""
    for number in range(1, payload["pictures"] + 1):
        time.sleep(0.5)
        print(f"picture {number} of {payload['pictures']}", flush=True)  # noqa: T201
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
    return {"year": payload["year"], "total": 12 * payload["year"]}
