"""The control plane's database: `default`, or the alias in CONTROLPLANE_DATABASE.

Django's `connection` and `transaction` always belong to `default`. The objects of this package belong to the control
plane's database.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, connections
from django.db.migrations.executor import MigrationExecutor
from django.db.models import Model
from django.utils.connection import ConnectionProxy

ALIAS: str = getattr(settings, "CONTROLPLANE_DATABASE", DEFAULT_DB_ALIAS)
APPS = ("liveness", "jobs")
"""Labels of the apps whose tables are in this database."""

MIGRATE = "migrate" if ALIAS == DEFAULT_DB_ALIAS else f"migrate --database {ALIAS}"
"""Command of manage.py that creates these tables."""

connection: Any = ConnectionProxy(connections, ALIAS)


@contextmanager
def outside_pool() -> Iterator[Any]:
    """Give this thread a connection of its own, outside the pool, until the end of the block."""
    former = connections[ALIAS]
    connections[ALIAS] = own = make_connection_outside_pool()
    try:
        yield own
    finally:
        own.close()
        connections[ALIAS] = former


def make_connection_outside_pool() -> Any:
    own = connections.create_connection(ALIAS)
    own.settings_dict = {**own.settings_dict, "OPTIONS": {**own.settings_dict.get("OPTIONS", {}), "pool": False}}
    return own


def make_direct_connection() -> Any:
    """Return a new connection to PostgreSQL itself, past any pooler that shares sessions between transactions.

    LISTEN, advisory locks of a session and migrations need it.
    """
    own = make_connection_outside_pool()
    own.settings_dict = {**own.settings_dict, **(getattr(settings, "DATABASE_DIRECT", None) or {})}
    return own


@contextmanager
def outside_pooler() -> Iterator[Any]:
    """Give this thread a direct connection until the end of the block, if there is a pooler."""
    if getattr(settings, "DATABASE_DIRECT", None) is None:
        yield connections[ALIAS]
        return
    former = connections[ALIAS]
    connections[ALIAS] = own = make_direct_connection()
    try:
        yield own
    finally:
        own.close()
        connections[ALIAS] = former


class Router:
    """Database router for an alias other than `default`. That database has our tables and no others."""

    def db_for_read(self, model: type[Model], **hints: object) -> str | None:
        return ALIAS if model._meta.app_label in APPS else None

    db_for_write = db_for_read

    def allow_migrate(self, db: str, app_label: str, app: str | None = None, **hints: object) -> bool | None:
        """Return whether a migration may run on this database.

        `app` is set by an operation in one of our migrations that changes tables of another app.
        """
        if (app or app_label) in APPS:
            return db == ALIAS
        return False if db == ALIAS != DEFAULT_DB_ALIAS else None


def count_missing_migrations() -> int:
    """Return how many migrations are missing.

    In a separate database, count only migrations of our apps and migrations that these depend on.
    """
    executor = MigrationExecutor(connection)
    graph = executor.loader.graph
    apps = [None] if ALIAS == DEFAULT_DB_ALIAS else APPS
    return len(executor.migration_plan([leaf for app in apps for leaf in graph.leaf_nodes(app)]))


def reset_may_have_changed() -> None:
    """Reset the answer of `may_have_changed` for this thread."""
    ours = connections[ALIAS]
    if hasattr(ours, "may_have_changed"):
        ours.may_have_changed = False


class ChangeWatch:
    """Context manager: `changed` is True if its block may have changed something in the database."""

    changed = True

    def __enter__(self) -> "ChangeWatch":
        self._ours = cast("Any", connections[ALIAS])
        self._before = getattr(self._ours, "may_have_changed", None)
        if self._before is not None:
            self._ours.may_have_changed = False
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            self.changed = self._ours.may_have_changed
            self._ours.may_have_changed = self._before or self.changed


@contextmanager
def reading() -> Iterator[None]:
    """Let `may_have_changed` ignore the statements of the `with` block, because they only read."""
    ours, before = connections[ALIAS], may_have_changed()
    try:
        yield
    finally:
        if hasattr(ours, "may_have_changed"):
            ours.may_have_changed = before


def may_have_changed() -> bool:
    """Return True if this thread may have changed something in the database since the last reset.

    Return True also if the host project's database engine does not record changes.
    """
    return bool(getattr(connections[ALIAS], "may_have_changed", True))
