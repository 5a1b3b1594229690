"""Rules for text from others: which characters it may have, and how it is written to a log on one line.

No text can imitate a log line. Without Django, so agents use the same rules.
"""

import re
import textwrap
from collections.abc import MutableMapping
from typing import Any

CONTROLS = r"\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069"
"""Characters that move the cursor, end a line, start an escape code, or change the direction of other text."""
TAB = "\t"
"""The control character that stays in output of programs, because it moves the cursor only within its line."""
CLEAN = rf"\A[^{CONTROLS}]*\Z"
CONTROL = re.compile(f"[{CONTROLS}]")
NOT_CLEAN = "Control characters, line breaks among them, are not allowed here."


def is_clean(text: str) -> bool:
    return CONTROL.search(text) is None


def escaped(text: str, keep: str = "") -> str:
    r"""Return the text on one line, with control characters written as \n or \x1b, except those in `keep`."""
    return CONTROL.sub(lambda match: match[0] if match[0] in keep else match[0].encode("unicode_escape").decode(), text)


def escape_event(logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Escape a log event. A structlog processor, last before the renderer for people, after `format_exc_info`.

    An event is one line, whatever its names and values contain. The traceback below it is indented, so that none of its
    lines looks like an event.
    """
    clean = {escaped(str(name)): value_on_one_line(value) for name, value in event.items()}
    for name in ("exception", "stack"):
        if name in event:
            lines = str(event[name]).split("\n")
            clean[name] = textwrap.indent("\n".join(map(escaped, lines)), "    ", lambda line: True)
    return clean


def value_on_one_line(value: object) -> Any:
    """Return a value unchanged, or its escaped text if that would not stay on one line."""
    text = value if isinstance(value, str) else repr(value)
    return value if is_clean(text) else escaped(text)


def reason(error: Exception) -> str:
    """Return why a file cannot be read, without the error number and the path."""
    return getattr(error, "strerror", None) or str(error)
