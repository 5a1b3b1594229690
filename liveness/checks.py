"""Django system checks of the LIVENESS settings. They report all problems at once, each with its id."""

from itertools import starmap
from typing import Any

from django.core.checks import CheckMessage, Error, Warning, register
from django.core.exceptions import ImproperlyConfigured

from controlplane.core.settings_schema import CHECKS
from controlplane.core.signing_keys import explain_weak_key
from liveness.conf import conf, timeout_problems
from liveness.services.tokens import list_signing_keys


@register(CHECKS)
def check_settings(**_: Any) -> list[CheckMessage]:
    settings, unreadable = conf.read_settings()
    messages: list[CheckMessage] = [Error(problem, id="liveness.E001") for problem in unreadable]
    for name in ("interval", "heartbeat_interval"):
        if getattr(settings, name) <= 0:
            messages.append(
                Error(
                    f'LIVENESS["{name.upper()}"] is {getattr(settings, name):g} s; it must be above 0.',
                    id="liveness.E002",
                )
            )
    for name in ("initial_delay", "termination_grace_period"):
        if getattr(settings, name) < 0:
            messages.append(
                Error(
                    f'LIVENESS["{name.upper()}"] is {getattr(settings, name):g} s; it must not be negative.',
                    id="liveness.E003",
                )
            )
    messages += [
        Error(f'LIVENESS["TIMEOUT"]: {problem}', id="liveness.E004")
        for problem in timeout_problems(
            timeout=settings.timeout, heartbeat_interval=settings.heartbeat_interval, interval=settings.interval
        )
    ]
    if settings.staleness_multiplier < 2:
        messages.append(
            Error(
                f'LIVENESS["STALENESS_MULTIPLIER"] is {settings.staleness_multiplier:g}; it must be at least 2.',
                id="liveness.E005",
            )
        )
    if settings.brake_minimum is not None and settings.brake_minimum < 1:
        messages.append(
            Error(
                f'LIVENESS["BRAKE_MINIMUM"] is {settings.brake_minimum}; use at least 1, or none for no brake.',
                id="liveness.E006",
            )
        )
    if not 0 < settings.brake_share <= 1:
        messages.append(
            Error(
                f'LIVENESS["BRAKE_SHARE"] is {settings.brake_share:g}; it must be above 0 and at most 1.',
                id="liveness.E007",
            )
        )
    for name in ("brake_max_hold", "heartbeat_retention", "event_retention", "server_retention"):
        value = getattr(settings, name)
        if value is not None and value < 0:
            messages.append(
                Error(f'LIVENESS["{name.upper()}"] is {value:g} s; it must not be negative.', id="liveness.E008")
            )
    if settings.witness_url is not None and not settings.witness_url.startswith(("http://", "https://")):
        messages.append(
            Error(
                f'LIVENESS["WITNESS_URL"] is {settings.witness_url!r}; it must begin with http:// or https://.',
                id="liveness.E009",
            )
        )
    messages += [] if unreadable else check_signing_keys()
    if 2 * settings.heartbeat_interval <= settings.timeout < 3 * settings.heartbeat_interval:
        messages.append(
            Warning(
                f'LIVENESS["TIMEOUT"] of {settings.timeout:g} s is below three heartbeat intervals of '
                f"{settings.heartbeat_interval:g} s: two lost heartbeats in a row disconnect a living server. "
                f"Use at least {3 * settings.heartbeat_interval:g} s.",
                id="liveness.W001",
            )
        )
    if not settings.enabled:
        messages.append(
            Warning(
                'LIVENESS["ENABLED"] is False: no server is disconnected for silence. Set it to True, unless this is '
                "wanted.",
                id="liveness.W002",
            )
        )
    return messages


def check_signing_keys() -> list[CheckMessage]:
    """Return an error for each weak key that signs server tokens. Django itself checks the keys for other uses."""
    try:
        keys = list_signing_keys()
    except ImproperlyConfigured:
        return []  # SECRET_KEY is empty: Django itself refuses to start
    return [Error(weakness, id="liveness.E010") for weakness in filter(None, starmap(explain_weak_key, keys))]
