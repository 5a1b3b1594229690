"""Django system checks over JOBS: every problem at once, each with its number."""

from typing import Any

from django.core.checks import CheckMessage, Error, register

from jobs.conf import conf


@register()
def settings_make_sense(**_: Any) -> list[CheckMessage]:
    given, unreadable = conf.readable()
    found: list[CheckMessage] = [Error(problem, id="jobs.E001") for problem in unreadable]
    found += [
        Error(f'JOBS["{name.upper()}"] is {value:g} s; it must be above 0.', id="jobs.E002")
        for name in ("sweep_interval", "claimer_heartbeat_interval", "runner_heartbeat_interval", "default_timeout")
        if (value := getattr(given, name)) is not None and value <= 0
    ]
    found += [
        Error(
            f'JOBS["{stale.upper()}"] of {getattr(given, stale):g} s is below two heartbeat intervals: '
            f'JOBS["{beat.upper()}"] is {getattr(given, beat):g} s. Use at least {2 * getattr(given, beat):g} s.',
            id="jobs.E005",
        )
        for stale, beat in (
            ("claimed_stale_after", "claimer_heartbeat_interval"),
            ("running_stale_after", "runner_heartbeat_interval"),
        )
        if getattr(given, stale) < 2 * getattr(given, beat)
    ]
    found += [
        Error(f'JOBS["{name.upper()}"] is {getattr(given, name):g} s; it must not be negative.', id="jobs.E004")
        for name in ("unmatched_after", "cancel_timeout")
        if (getattr(given, name) or 0) < 0
    ]
    if given.max_resubmissions < 0:
        found.append(
            Error(f'JOBS["MAX_RESUBMISSIONS"] is {given.max_resubmissions}; it must not be negative.', id="jobs.E003")
        )
    if given.waiting_limit is not None and given.waiting_limit < 1:
        found.append(Error(f'JOBS["WAITING_LIMIT"] is {given.waiting_limit}; it must be 1 or more.', id="jobs.E006"))
    for name in ("job_retention", "execution_retention", "heartbeat_retention"):
        value = getattr(given, name)
        if value is not None and value < 0:
            found.append(Error(f'JOBS["{name.upper()}"] is {value:g} s; it must not be negative.', id="jobs.E004"))
    return found
