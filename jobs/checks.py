"""Django system checks over JOBS: every problem at once, each with its number."""

from typing import Any

from django.core.checks import CheckMessage, Error, register

from jobs.conf import conf


@register()
def check_settings(**_: Any) -> list[CheckMessage]:
    settings, unreadable = conf.read_settings()
    messages: list[CheckMessage] = [Error(problem, id="jobs.E001") for problem in unreadable]
    messages += [
        Error(f'JOBS["{name.upper()}"] is {value:g} s; it must be above 0.', id="jobs.E002")
        for name in ("sweep_interval", "claimer_heartbeat_interval", "runner_heartbeat_interval", "default_timeout")
        if (value := getattr(settings, name)) is not None and value <= 0
    ]
    messages += [
        Error(
            f'JOBS["{stale.upper()}"] of {getattr(settings, stale):g} s is below two heartbeat intervals: '
            f'JOBS["{beat.upper()}"] is {getattr(settings, beat):g} s. Use at least {2 * getattr(settings, beat):g} s.',
            id="jobs.E005",
        )
        for stale, beat in (
            ("claimed_stale_after", "claimer_heartbeat_interval"),
            ("running_stale_after", "runner_heartbeat_interval"),
        )
        if getattr(settings, stale) < 2 * getattr(settings, beat)
    ]
    messages += [
        Error(f'JOBS["{name.upper()}"] is {getattr(settings, name):g} s; it must not be negative.', id="jobs.E004")
        for name in ("unmatched_after", "cancel_timeout")
        if (getattr(settings, name) or 0) < 0
    ]
    if settings.max_resubmissions < 0:
        messages.append(
            Error(
                f'JOBS["MAX_RESUBMISSIONS"] is {settings.max_resubmissions}; it must not be negative.', id="jobs.E003"
            )
        )
    if settings.waiting_limit is not None and settings.waiting_limit < 1:
        messages.append(
            Error(f'JOBS["WAITING_LIMIT"] is {settings.waiting_limit}; it must be 1 or more.', id="jobs.E006")
        )
    for name in ("job_retention", "execution_retention", "heartbeat_retention", "history_retention"):
        value = getattr(settings, name)
        if value is not None and value < 0:
            messages.append(Error(f'JOBS["{name.upper()}"] is {value:g} s; it must not be negative.', id="jobs.E004"))
    return messages
