"""Check that the packages `jobs` and `liveness` are ours. A host project may have packages of the same names."""

import importlib
from pathlib import Path

from django.core.exceptions import ImproperlyConfigured

OURS = Path(__file__).resolve().parents[2]


def refuse_others() -> None:
    """Raise ImproperlyConfigured if Python finds another package under the name of one of ours."""
    for name in ("jobs", "liveness"):
        location = importlib.import_module(name).__file__
        if location is None or Path(location).resolve().parents[1] != OURS:
            raise ImproperlyConfigured(
                f"The package {name!r} was found at {location}, but the control plane's is at {OURS / name}. "
                "A project with its own package of that name cannot include the control plane."
            )
