"""Scheduler on a machine with a wrong clock: `python -m tests.support.skewed_beat SECONDS`, or `back`.

With `back` the clock is set back by an hour after two seconds.
"""

import sys
import time
from datetime import datetime, timedelta

from celery import Celery

wrong, began, now = sys.argv[1], time.monotonic(), Celery.now


def skewed(app: Celery) -> datetime:
    if wrong == "back":
        return now(app) - timedelta(hours=1 if time.monotonic() - began > 2 else 0)
    return now(app) + timedelta(seconds=float(wrong))


Celery.now = skewed

from controlplane.celery import app  # noqa: E402 - it is to find the clock as it is here

app.start(["beat"])
