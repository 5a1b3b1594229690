"""Name of the instance and colour of its environment, so that nobody takes staging for production."""

import os

from django.conf import settings

DEFAULT_NAME = "Control plane"
COLORS = ("blue", "green", "amber", "red", "violet", "grey")


def read_setting(name: str) -> str:
    """Return a setting of the environment or of the project, or an empty text."""
    return str(os.environ.get(name) or getattr(settings, name, None) or "").strip()


def instance_name() -> str:
    """Return the name of the instance (`CONSOLE_NAME`)."""
    return read_setting("CONSOLE_NAME") or DEFAULT_NAME


def environment_color() -> str:
    """Return the colour of the environment (`CONSOLE_COLOR`), or an empty text for none or an unknown one."""
    color = read_setting("CONSOLE_COLOR").lower()
    return color if color in COLORS else ""
