"""The names of our packages that a project may have given to its own."""

import importlib
from pathlib import Path

from django.core.exceptions import ImproperlyConfigured

OURS = Path(__file__).resolve().parents[2]


def refuse_others() -> None:
    """Raise ImproperlyConfigured when Python finds another package in the place of one of ours."""
    for name in ("jobs", "liveness"):
        location = importlib.import_module(name).__file__
        if location is None or Path(location).resolve().parents[1] != OURS:
            raise ImproperlyConfigured(
                f"The package {name!r} is found at {location}, and not the control plane's at {OURS / name}: "
                "a project that has a package of that name cannot have the control plane in itself."
            )
