"""What a text of a stranger may hold, and how it is written into a log: one line of which he can forge nothing.

Django-free: agents write their logs by the same rule.
"""

import re
import textwrap
from collections.abc import MutableMapping
from typing import Any

CONTROLS = r"\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069"
"""What moves the cursor, ends a line, begins an escape code, or turns the direction of what stands beside it."""
CLEAN = rf"\A[^{CONTROLS}]*\Z"
CONTROL = re.compile(f"[{CONTROLS}]")
NOT_CLEAN = "Control characters, line breaks among them, are not allowed here."


def is_clean(text: str) -> bool:
    return CONTROL.search(text) is None


def escaped(text: str) -> str:
    r"""The text on one line, control characters written as \n or \x1b."""
    return CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def escape_event(logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A processor of structlog, last before what renders lines for people, after `format_exc_info`.

    An event is one line, whatever its names and values hold. The traceback below it is indented, so that none of its
    lines looks like an event.
    """
    clean = {escaped(str(name)): value_on_one_line(value) for name, value in event.items()}
    for name in ("exception", "stack"):
        if name in event:
            lines = str(event[name]).split("\n")
            clean[name] = textwrap.indent("\n".join(map(escaped, lines)), "    ", lambda line: True)
    return clean


def value_on_one_line(value: object) -> Any:
    """A value as it is, unless its text would not stay on the line."""
    text = value if isinstance(value, str) else repr(value)
    return value if is_clean(text) else escaped(text)


def reason(error: Exception) -> str:
    """Why a file cannot be read, without the number of the error and the path, which whoever says it has said."""
    return getattr(error, "strerror", None) or str(error)
