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
