"""Django system checks of the settings JOBS and ALERTS. They report all problems at once, each with its id."""

import base64
import os
from importlib.util import find_spec
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning, register

from controlplane.core.settings_schema import CHECKS
from jobs.conf import alerts_conf, conf, console_url
from liveness.conf import conf as liveness_conf


@register(CHECKS)
def check_settings(**_: Any) -> list[CheckMessage]:
    chosen, unreadable = conf.read_settings()
    messages: list[CheckMessage] = [Error(problem, id="jobs.E001") for problem in unreadable]
    messages += [
        Error(f'JOBS["{name.upper()}"] is {value:g} s; it must be above 0.', id="jobs.E002")
        for name in ("sweep_interval", "claimer_heartbeat_interval", "runner_heartbeat_interval", "default_timeout")
        if (value := getattr(chosen, name)) is not None and value <= 0
    ]
    messages += [
        Error(
            f'JOBS["{stale.upper()}"] of {getattr(chosen, stale):g} s is below two heartbeat intervals: '
            f'JOBS["{beat.upper()}"] is {getattr(chosen, beat):g} s. Use at least {2 * getattr(chosen, beat):g} s.',
            id="jobs.E005",
        )
        for stale, beat in (
            ("claimed_stale_after", "claimer_heartbeat_interval"),
            ("running_stale_after", "runner_heartbeat_interval"),
        )
        if getattr(chosen, stale) < 2 * getattr(chosen, beat)
    ]
    messages += [
        Error(f'JOBS["{name.upper()}"] is {getattr(chosen, name):g} s; it must not be negative.', id="jobs.E004")
        for name in ("unmatched_after", "cancel_timeout", "signal_kept")
        if (getattr(chosen, name) or 0) < 0
    ]
    if chosen.max_resubmissions < 0:
        messages.append(
            Error(f'JOBS["MAX_RESUBMISSIONS"] is {chosen.max_resubmissions}; it must not be negative.', id="jobs.E003")
        )
    for name in ("waiting_limit", "waiting_tag_sets_limit"):
        if (limit := getattr(chosen, name)) is not None and limit < 1:
            messages.append(Error(f'JOBS["{name.upper()}"] is {limit}; it must be 1 or more.', id="jobs.E006"))
    for name in ("job_retention", "execution_retention", "heartbeat_retention", "history_retention", "batch_retention"):
        value = getattr(chosen, name)
        if value is not None and value < 0:
            messages.append(Error(f'JOBS["{name.upper()}"] is {value:g} s; it must not be negative.', id="jobs.E004"))
    return messages


@register(CHECKS)
def check_alerts(**_: Any) -> list[CheckMessage]:
    chosen, unreadable = alerts_conf.read_settings()
    messages: list[CheckMessage] = [Error(problem, id="jobs.E001") for problem in unreadable]
    urls = [("WEBHOOK_URLS", number, url) for number, url in enumerate(chosen.webhook_urls.split(), 1)]
    urls += [("HEARTBEAT_URL", 1, chosen.heartbeat_url)] if chosen.heartbeat_url else []
    for key, number, url in urls:
        if not url.startswith(("http://", "https://")):
            # The message does not show the address, because it may contain a token.
            problem = f'ALERTS["{key}"]: address {number} must begin with http:// or https://.'
            messages.append(Error(problem, id="jobs.E007"))
    if (address := console_url()) and not address.startswith(("http://", "https://")):
        messages.append(
            Error(f"CONSOLE_URL is {address!r}; use the public address, like https://example.org.", id="jobs.E010")
        )
    if chosen.email_url:
        from jobs.services.alert_channels import read_mail_server

        try:
            read_mail_server(chosen.email_url)
        except ValueError as error:
            messages.append(Error(f'ALERTS["EMAIL_URL"] is not the address of a mail server: {error}.', id="jobs.E009"))
    if chosen.apprise_urls.split() and find_spec("apprise") is None:
        problem = 'ALERTS["APPRISE_URLS"] needs Apprise, which is not installed.'
        hint = "Run `pip install 'controlplane[chat]'`, or remove the setting."
        messages.append(Error(problem, hint=hint, id="jobs.E011"))
    if chosen.webhook_urls.split() and not is_secret(chosen.webhook_secret):
        messages.append(
            Error(
                'ALERTS["WEBHOOK_URLS"] needs ALERTS["WEBHOOK_SECRET"]: whsec_ and 24 to 64 random bytes in base64.',
                id="jobs.E008",
            )
        )
    return messages


@register(CHECKS)
def check_overridden_settings(**_: Any) -> list[CheckMessage]:
    """Warn of settings that the environment overrides with another value."""
    overridden = [sentence for one in (liveness_conf, conf, alerts_conf) for sentence in one.list_overridden()]
    configured, variable = getattr(settings, "CONSOLE_URL", None), os.environ.get("CONSOLE_URL")
    if configured and variable and str(configured).rstrip("/") != variable.strip().rstrip("/"):
        overridden.append(f"CONSOLE_URL is {configured!r} and is not used: the environment has {variable!r} and wins.")
    hint = "Remove one of the two."
    return [Warning(sentence, hint=hint, id="jobs.W001") for sentence in overridden]


def is_secret(text: str | None) -> bool:
    """Return True if the text is `whsec_` and 24 to 64 bytes in base64."""
    try:
        return 24 <= len(base64.b64decode((text or "").removeprefix("whsec_"), validate=True)) <= 64
    except ValueError:
        return False
