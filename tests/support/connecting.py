"""Another connection to the tests' database."""

from typing import Any

from django.conf import settings
from django.db import connection


def place() -> dict[str, Any]:
    """Return the connection parameters of the tests' database, to open another connection."""
    given = {**settings.DATABASES["default"], **connection.settings_dict}
    names = {"dbname": "NAME", "host": "HOST", "port": "PORT", "user": "USER", "password": "PASSWORD"}
    return {name: given[key] for name, key in names.items() if given[key]}
