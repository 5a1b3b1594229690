"""Schedules of triggers in words."""

import re
from datetime import UTC, datetime
from typing import Any

from cronsim import CronSim, CronSimError

from controlplane.core.durations import describe_duration

ANY_TIME = datetime(2000, 1, 1, tzinfo=UTC)
AT_A_TIME = re.compile(r"At (\d.*?) (?:on |(?=every ))(.+)")
SHORT = {"Monday through Friday": "weekdays", "Sunday and Saturday": "weekends"}


def describe_schedule_in_words(trigger: Any) -> str:
    """Return a schedule like "weekdays at 08:00 Europe/Zurich". Empty if the cron expression is no longer valid."""
    if trigger.on_signal is not None:
        return f"at each signal {trigger.on_signal}"
    if trigger.cron is None:
        return f"every {describe_duration(trigger.interval_seconds)}"
    words = describe_cron(trigger.cron)
    return words and f"{words} {trigger.timezone}"


def describe_cron(cron: str) -> str:
    """Return a cron expression in words, like "weekdays at 08:00". Empty if it is not valid."""
    try:
        words: str = CronSim(cron, ANY_TIME).explain()
    except (CronSimError, OverflowError):
        return ""
    if found := AT_A_TIME.fullmatch(words):
        at, days = found.groups()
        return f"{SHORT.get(days, days)} at {at}"
    return words[:1].lower() + words[1:]
