"""Django system checks over JOBS: every problem at once, each with its number."""

import base64
from typing import Any

from django.core.checks import CheckMessage, Error, register

from jobs.conf import alerts_conf, conf
from jobs.services.alert_channels import read_mail_server


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
    for name in ("job_retention", "execution_retention", "heartbeat_retention", "history_retention", "batch_retention"):
        value = getattr(settings, name)
        if value is not None and value < 0:
            messages.append(Error(f'JOBS["{name.upper()}"] is {value:g} s; it must not be negative.', id="jobs.E004"))
    return messages


@register()
def check_alerts(**_: Any) -> list[CheckMessage]:
    settings, unreadable = alerts_conf.read_settings()
    messages: list[CheckMessage] = [Error(problem, id="jobs.E001") for problem in unreadable]
    for url in [*settings.webhook_urls.split(), *([settings.heartbeat_url] if settings.heartbeat_url else [])]:
        if not url.startswith(("http://", "https://")):
            messages.append(Error(f"ALERTS: {url!r} is no address; write http://… or https://….", id="jobs.E007"))
    if settings.email_url:
        try:
            read_mail_server(settings.email_url)
        except ValueError as error:
            messages.append(Error(f'ALERTS["EMAIL_URL"] is no address of a mail server: {error}.', id="jobs.E009"))
    if settings.webhook_urls.split() and not is_secret(settings.webhook_secret):
        messages.append(
            Error(
                'ALERTS["WEBHOOK_URLS"] needs ALERTS["WEBHOOK_SECRET"]: whsec_ and 24 to 64 random bytes in base64.',
                id="jobs.E008",
            )
        )
    return messages


def is_secret(text: str | None) -> bool:
    """Whether a signature can be made with it."""
    try:
        return 24 <= len(base64.b64decode((text or "").removeprefix("whsec_"), validate=True)) <= 64
    except ValueError:
        return False
