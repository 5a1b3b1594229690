"""Another connection to the tests' database."""

from typing import Any

from django.db import connection


def connection_parameters() -> dict[str, Any]:
    """Return what `psycopg.connect` needs for the database in which this thread's connection is.

    The settings are not asked, because only the connection knows for certain where it leads.
    """
    connection.ensure_connection()
    info = connection.connection.info
    where = {"dbname": info.dbname, "host": info.host, "port": info.port, "user": info.user, "password": info.password}
    return {name: value for name, value in where.items() if value}
