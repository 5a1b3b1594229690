"""The database of the control plane: `default`, or the alias that CONTROLPLANE_DATABASE names.

`connection` and `transaction` of Django are those of `default`; here are those of this one.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, connections
from django.db.migrations.executor import MigrationExecutor
from django.utils.connection import ConnectionProxy

ALIAS: str = getattr(settings, "CONTROLPLANE_DATABASE", DEFAULT_DB_ALIAS)
APPS = ("liveness", "jobs")
"""Labels of the apps whose tables it has."""

MIGRATE = "migrate" if ALIAS == DEFAULT_DB_ALIAS else f"migrate --database {ALIAS}"
"""The command that makes them."""

connection: Any = ConnectionProxy(connections, ALIAS)


class Router:
    """For DATABASE_ROUTERS, where the alias is not `default`: our tables are in that database, and no others."""

    def db_for_read(self, model: Any, **hints: Any) -> str | None:
        return ALIAS if model._meta.app_label in APPS else None

    db_for_write = db_for_read

    def allow_migrate(self, db: str, app_label: str, app: str | None = None, **hints: Any) -> bool | None:
        """`app`: an operation of a migration of ours is about the tables of this one."""
        if (app or app_label) in APPS:
            return db == ALIAS
        return False if db == ALIAS != DEFAULT_DB_ALIAS else None


def count_missing_migrations() -> int:
    """Those of all apps; in a database of our own, ours and what they depend on."""
    executor = MigrationExecutor(connection)
    graph = executor.loader.graph
    apps = [None] if ALIAS == DEFAULT_DB_ALIAS else APPS
    return len(executor.migration_plan([leaf for app in apps for leaf in graph.leaf_nodes(app)]))


def reset_may_have_changed() -> None:
    """From now on, in this thread."""
    ours = connections[ALIAS]
    if hasattr(ours, "may_have_changed"):
        ours.may_have_changed = False


@contextmanager
def reading() -> Iterator[None]:
    """What is said within changes nothing, whatever it looks like."""
    ours, before = connections[ALIAS], may_have_changed()
    try:
        yield
    finally:
        if hasattr(ours, "may_have_changed"):
            ours.may_have_changed = before


def may_have_changed() -> bool:
    """Something, since this thread began to watch; a project's own engine does not know, so that it may."""
    return bool(getattr(connections[ALIAS], "may_have_changed", True))
