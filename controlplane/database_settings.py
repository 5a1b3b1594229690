"""Settings of the databases, read from the environment."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import dj_database_url

from controlplane.core import database_limits

ENGINE = "controlplane.core.database"
REPLICA_WITHIN = 2
"""Seconds that a page waits for a connection to the read replica. After that it reads the primary."""


class Databases(NamedTuple):
    aliases: dict[str, Any]
    """Setting DATABASES: `default`, and `replica` if there is one."""
    direct: dict[str, Any] | None
    """Parts of `default` that differ for a connection to PostgreSQL itself. None: `default` leads there."""


def read_environment(environment: Mapping[str, str], url: str) -> Databases:
    """Return the databases. `url` is the URL of `default`. Raise ValueError for an invalid variable."""
    default = parse_url("DATABASE_URL", url)
    direct_url, read_url = environment.get("DATABASE_DIRECT_URL"), environment.get("DATABASE_READ_URL")
    size = int(environment.get("DATABASE_POOL_SIZE", "8"))
    # A pooler in transaction mode needs them off. Only frequent statements are prepared.
    prepares = environment.get("DATABASE_PREPARED_STATEMENTS", "0" if direct_url else "1") == "1"
    # Each web or executor process has a small pool; the embedded PostgreSQL allows 100 connections in all. A connection
    # is not tested before use, because that would add a round trip to each request. An attempt to connect is given up
    # early: during its back-off the pool makes no other connection, even if the database is back.
    pool = {"min_size": 0, "max_size": size, "timeout": 5, "reconnect_timeout": 1}
    common = {
        "pool": size > 0 and pool,
        "connect_timeout": 5,
        "tcp_user_timeout": 15_000,  # ms; a connection that a firewall dropped would otherwise hang for 15 minutes
        "prepare_threshold": 5 if prepares else None,
    }
    direct, database_limits.is_pooled = None, False
    if direct_url:
        parsed = add_options(parse_url("DATABASE_DIRECT_URL", direct_url), {**common, "pool": False})
        direct = {key: parsed[key] for key in ("NAME", "USER", "PASSWORD", "HOST", "PORT", "OPTIONS")}
    database_limits.is_pooled = bool(direct_url)
    aliases = {"default": add_options(default, common)}
    if read_url:
        within = {"pool": size > 0 and {**pool, "timeout": REPLICA_WITHIN}, "connect_timeout": REPLICA_WITHIN}
        aliases["replica"] = add_options(parse_url("DATABASE_READ_URL", read_url), {**common, **within})
    return Databases(aliases, direct)


def parse_url(variable: str, url: str) -> dict[str, Any]:
    database: dict[str, Any] = {**dj_database_url.parse(url)}
    if "postg" not in (engine := database["ENGINE"]):
        raise ValueError(
            f"{variable}: the control plane needs PostgreSQL 15 or later, but this is {engine.rpartition('.')[2]}"
        )
    return {**database, "ENGINE": ENGINE}


def add_options(database: dict[str, Any], common: dict[str, Any]) -> dict[str, Any]:
    given = database.get("OPTIONS", {})
    limited = database_limits.connection_options(given.get("options", ""))
    return {**database, "OPTIONS": {**given, **limited, **common}}
