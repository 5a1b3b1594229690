"""Parameters of the PostgreSQL sessions: settings that our statements rely on, and limits.

The limits depend on the role of the process. A process may be suspended in a transaction, or its machine may be lost.
The limits bound how long other processes then wait for its locks.
"""

import os
from typing import Any, NamedTuple

from controlplane.core.durations import parse_duration


class Limits(NamedTuple):
    """Limits in seconds. None means no limit."""

    statement: float | None
    lock: float | None
    idle: float | None
    """Seconds between two statements of a transaction."""


WEB, EXECUTOR, COMMAND = "web", "executor", "command"
DEFAULTS = {
    WEB: Limits(15, 5, 10),
    EXECUTOR: Limits(300, 10, 10),  # a batch of the daily task may take long
    # A migration waits at most this long for a table lock, because later transactions queue behind it.
    COMMAND: Limits(None, 10, 60),
}
VARIABLES = ("DATABASE_STATEMENT_TIMEOUT", "DATABASE_LOCK_TIMEOUT", "DATABASE_IDLE_TIMEOUT")
PARAMETERS = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
# A machine that loses power closes no connection. Each end notices that in half a minute; TCP alone takes two hours.
CLIENT_KEEPALIVES = {"keepalives": 1, "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}
SERVER_KEEPALIVES = {
    "tcp_keepalives_idle": 10, "tcp_keepalives_interval": 5, "tcp_keepalives_count": 3, "tcp_user_timeout": 30_000,
}  # fmt: skip

REQUIRED = {
    "DateStyle": "ISO",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    "standard_conforming_strings": "on",
    "array_nulls": "on",
    "transform_null_equals": "off",
    "default_transaction_isolation": "read committed",
    "default_transaction_read_only": "off",
    "default_transaction_deferrable": "off",
    "idle_session_timeout": "0",  # no limit, because connections of the pool and of listeners are idle for long
    "row_security": "on",
}
"""Parameters that our statements and the driver rely on. They override the defaults of the database and the role."""
NOT_COMPILED = {"jit": "off"}
"""Switch off JIT: compiling one of our statements takes longer than running it."""
POOLED_LIMITS = {"lock_timeout": "10000", "idle_in_transaction_session_timeout": "60000"}
"""Limits in milliseconds for every role. They are used behind a pooler that does not pass on our parameters."""

is_pooled = False
"""True if a pooler shares sessions between transactions. Then no parameter is sent when a session starts."""

role = COMMAND
"""Role of this process. Its entry point sets it before Django reads the settings."""


def read_limits() -> Limits:
    """Return the limits of this process. Raise ValueError if an environment variable is invalid."""
    return Limits(*(read_limit(name, default) for name, default in zip(VARIABLES, DEFAULTS[role], strict=True)))


def read_limit(variable: str, default: float | None) -> float | None:
    if not (text := os.environ.get(variable, "")):
        return default
    try:
        value = parse_duration(text)
    except ValueError as error:
        raise ValueError(f"{variable}: {error}") from None
    if value is not None and value < 0.001:
        raise ValueError(f'{variable}: {text!r} is below 1 ms; write "none" for no limit')
    return value


def session_limits() -> dict[str, str]:
    """Return the limits of this process as PostgreSQL parameters, in milliseconds. 0 means no limit.

    Return no parameters if there is no limit at all. Some poolers demand that no parameters are sent when a session
    starts.
    """
    limits = read_limits()
    if all(value is None for value in limits):
        return {}
    return {name: str(round((value or 0) * 1000)) for name, value in zip(PARAMETERS, limits, strict=True)}


def connection_options(given: str = "") -> dict[str, Any]:
    """Return the options of a connection.

    `given` are the options in DATABASE_URL. They override our limits, because they come later.
    """
    limits = {} if is_pooled else session_limits()
    sent = (
        [write_option(name, value) for name, value in {**limits, **SERVER_KEEPALIVES, **NOT_COMPILED}.items()]
        if limits
        else []
    )
    sent += [given] if given else []
    sent += [write_option(name, value) for name, value in REQUIRED.items()] if sent else []
    return {**CLIENT_KEEPALIVES, **({"options": " ".join(sent)} if sent else {})}


def write_option(name: str, value: object) -> str:
    escaped = str(value).replace(" ", "\\ ")
    return f"-c {name}={escaped}"
