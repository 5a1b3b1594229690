"""Another connection to the tests' database."""

from typing import Any

from django.conf import settings
from django.db import connection


def connection_parameters() -> dict[str, Any]:
    """Return what `psycopg.connect` needs for the tests' database."""
    given = {**settings.DATABASES["default"], **connection.settings_dict}
    names = {"dbname": "NAME", "host": "HOST", "port": "PORT", "user": "USER", "password": "PASSWORD"}
    return {name: given[key] for name, key in names.items() if given[key]}
