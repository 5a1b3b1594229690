"""What a command says when it fails, and its exit code."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from controlplane.agent.clean_text import escaped
from controlplane.client.session import Refused

USAGE, REFUSED, UNREACHABLE, STILL_RUNNING, INTERRUPTED = 2, 3, 4, 5, 130


def explain(refused: Refused) -> str:
    """A refusal in words that say what to do."""
    match refused.status:
        case 401:
            first = f"The token was refused: {refused.detail}"
        case 403:
            first = f"This token may not do that: {refused.detail}"
        case _:
            first = str(refused.detail)
    return "\n".join([first, *(f"  {where}: {what}" for where, what in flatten(refused.errors))])


def flatten(errors: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Where, as `action.type`, and what is wrong there."""
    match errors:
        case dict():
            for name, inner in errors.items():
                yield from flatten(inner, f"{path}.{name}" if path else str(name))
        case list() if any(isinstance(inner, dict | list) for inner in errors):
            for number, inner in enumerate(errors):
                yield from flatten(inner, f"{path}[{number}]")
        case list():
            yield path, " ".join(map(str, errors))
        case None:
            pass
        case _:
            yield path, str(errors)


def complain(text: str, code: int) -> int:
    print(*map(escaped, text.split("\n")), sep="\n", file=sys.stderr)  # noqa: T201
    return code
