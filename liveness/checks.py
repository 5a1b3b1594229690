"""Django system checks over LIVENESS: every problem at once, each with its number."""

from typing import Any

from django.core.checks import CheckMessage, Error, Warning, register

from liveness.conf import conf, timeout_problems


@register()
def settings_make_sense(**_: Any) -> list[CheckMessage]:
    given, unreadable = conf.readable()
    found: list[CheckMessage] = [Error(problem, id="liveness.E001") for problem in unreadable]
    for name in ("interval", "heartbeat_interval"):
        if getattr(given, name) <= 0:
            found.append(
                Error(
                    f'LIVENESS["{name.upper()}"] is {getattr(given, name):g} s; it must be above 0.', id="liveness.E002"
                )
            )
    for name in ("initial_delay", "termination_grace_period"):
        if getattr(given, name) < 0:
            found.append(
                Error(
                    f'LIVENESS["{name.upper()}"] is {getattr(given, name):g} s; it must not be negative.',
                    id="liveness.E003",
                )
            )
    found += [
        Error(f'LIVENESS["TIMEOUT"]: {problem}', id="liveness.E004")
        for problem in timeout_problems(
            timeout=given.timeout, heartbeat_interval=given.heartbeat_interval, interval=given.interval
        )
    ]
    if given.staleness_multiplier < 2:
        found.append(
            Error(
                f'LIVENESS["STALENESS_MULTIPLIER"] is {given.staleness_multiplier:g}; it must be at least 2.',
                id="liveness.E005",
            )
        )
    if given.brake_minimum is not None and given.brake_minimum < 1:
        found.append(
            Error(
                f'LIVENESS["BRAKE_MINIMUM"] is {given.brake_minimum}; it must be at least 1, or none.',
                id="liveness.E006",
            )
        )
    if not 0 < given.brake_share <= 1:
        found.append(
            Error(
                f'LIVENESS["BRAKE_SHARE"] is {given.brake_share:g}; it must be above 0 and at most 1.',
                id="liveness.E007",
            )
        )
    for name in ("brake_max_hold", "heartbeat_retention", "event_retention", "server_retention"):
        value = getattr(given, name)
        if value is not None and value < 0:
            found.append(
                Error(f'LIVENESS["{name.upper()}"] is {value:g} s; it must not be negative.', id="liveness.E008")
            )
    if given.witness_url is not None and not given.witness_url.startswith(("http://", "https://")):
        found.append(
            Error(f'LIVENESS["WITNESS_URL"] is {given.witness_url!r}; write http://… or https://….', id="liveness.E009")
        )
    if 2 * given.heartbeat_interval <= given.timeout < 3 * given.heartbeat_interval:
        found.append(
            Warning(
                f'LIVENESS["TIMEOUT"] of {given.timeout:g} s is below three heartbeat intervals of '
                f"{given.heartbeat_interval:g} s: two lost heartbeats in a row disconnect a living server.",
                id="liveness.W001",
            )
        )
    if not given.enabled:
        found.append(Warning('LIVENESS["ENABLED"] is False: nobody is disconnected for silence.', id="liveness.W002"))
    return found
