"""Error messages of commands, and their exit codes."""

from __future__ import annotations

import sys

from controlplane.agent.api.field_errors import flatten_errors
from controlplane.agent.clean_text import escaped
from controlplane.client.session import Refused

USAGE, REFUSED, UNREACHABLE, STILL_RUNNING, INTERRUPTED = 2, 3, 4, 5, 130


def explain(refused: Refused) -> str:
    """Return the error of a refused call as lines for people."""
    match refused.status if refused.code else None:
        case 401:
            first = f"The token was refused: {refused.detail}"
        case 403:
            first = f"This token is not allowed to do that: {refused.detail}"
        case _:
            first = str(refused.detail)
    return "\n".join([first, *(f"  {where}: {what}" for where, what in flatten_errors(refused.errors))])


def complain(text: str, code: int) -> int:
    print_for_people(text)
    return code


def print_for_people(text: str) -> None:
    """Print lines for a person, on stderr."""
    print(*map(escaped, text.split("\n")), sep="\n", file=sys.stderr)  # noqa: T201
