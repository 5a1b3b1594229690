"""How long a process of the control plane may keep the database, by its role.

Whatever becomes of a process, suspended in the middle of a transaction, or of its whole machine: the others wait no
longer than this.
"""

import os
from typing import Any, NamedTuple

from controlplane.core.durations import parse_duration


class Limits(NamedTuple):
    """Seconds; None: no limit."""

    statement: float | None
    lock: float | None
    idle: float | None
    """Between two statements of a transaction."""


WEB, EXECUTOR, COMMAND = "web", "executor", "command"
DEFAULTS = {
    WEB: Limits(15, 5, 10),
    EXECUTOR: Limits(300, 10, 10),  # a batch of the daily task may take its time
    # A migration waits for a table no longer than this either: whoever comes after it waits behind it.
    COMMAND: Limits(None, 10, 60),
}
VARIABLES = Limits("DATABASE_STATEMENT_TIMEOUT", "DATABASE_LOCK_TIMEOUT", "DATABASE_IDLE_TIMEOUT")  # type: ignore[arg-type]
PARAMETERS = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
# A machine that lost its power says no goodbye: each end finds that out in half a minute, not in the two hours of TCP.
CLIENT_KEEPALIVES = {"keepalives": 1, "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}
SERVER_KEEPALIVES = {
    "tcp_keepalives_idle": 10, "tcp_keepalives_interval": 5, "tcp_keepalives_count": 3, "tcp_user_timeout": 30_000,
}  # fmt: skip

# Compiling a statement takes longer than any of ours; and what PostgreSQL expects of a recursion is far too much.
NOT_COMPILED = {"jit": "off"}

role = COMMAND
"""Of this process; its entry point says so before Django reads the settings."""


def read_limits() -> Limits:
    """Those of this process. Raises ValueError with what is wrong with what the environment says."""
    return Limits(*(read_limit(name, default) for name, default in zip(VARIABLES, DEFAULTS[role], strict=True)))


def read_limit(variable: Any, default: float | None) -> float | None:
    if not (text := os.environ.get(variable, "")):
        return default
    try:
        value = parse_duration(text)
    except ValueError as error:
        raise ValueError(f"{variable}: {error}") from None
    if value is not None and value < 0.001:
        raise ValueError(f'{variable}: {text!r} would be no limit; write "none" for that')
    return value


def connection_options(given: str = "") -> dict[str, Any]:
    """Options of a connection. What is `given` in DATABASE_URL counts.

    With no limit at all nothing is asked of the server at the start of a session: some PgBouncers refuse that.
    """
    limited = {
        name: round(value * 1000) for name, value in zip(PARAMETERS, read_limits(), strict=True) if value is not None
    }
    parameters = {**limited, **SERVER_KEEPALIVES, **NOT_COMPILED} if limited else {}
    startup_options = " ".join([*(f"-c {name}={value}" for name, value in parameters.items()), given]).strip()
    return {**CLIENT_KEEPALIVES, **({"options": startup_options} if startup_options else {})}
