"""Django's PostgreSQL engine that also records whether a change may have been committed.

If the connection is lost during COMMIT, nobody knows whether the transaction was committed; earlier commits stay. A
statement that PostgreSQL refused has changed nothing. A statement whose transaction did not reach its COMMIT has
changed nothing either.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from functools import cache
from typing import Any

import psycopg
from django.db import Error, OperationalError
from django.db.backends.postgresql import base
from django.db.backends.postgresql.psycopg_any import BaseTzLoader
from psycopg.abc import Buffer
from psycopg.adapt import AdaptersMap

from controlplane.core.database import ALIAS
from controlplane.core.database.errors import classify
from controlplane.core.database.silence import WatchedConnection


class UtcLoader(BaseTzLoader):
    """Load timestamps ten times as fast as Django does. Nearly every row has several."""

    timezone = UTC

    def load(self, data: Buffer) -> datetime:
        with suppress(ValueError):
            moment = datetime.fromisoformat(str(data, "ascii"))
            return moment if moment.tzinfo is UTC else moment.astimezone(UTC)
        return super().load(data)


@cache
def with_utc_loader(adapters: AdaptersMap) -> AdaptersMap:
    """Return Django's adapters with our loader of timestamps."""
    adapters = AdaptersMap(adapters)
    adapters.register_loader("timestamptz", UtcLoader)
    return adapters


on_connect: list[Callable[[psycopg.Connection[Any]], object]] = []
"""Functions that are called with each new connection to the control plane's database, before anything else uses it."""


class WatchedDriver:
    """The driver psycopg with connections that are watched for silence."""

    connect = WatchedConnection.connect

    def __getattr__(self, name: str) -> Any:
        return getattr(psycopg, name)


class DatabaseWrapper(base.DatabaseWrapper):
    Database: Any = WatchedDriver()
    may_have_changed = False
    """True after a statement that may have changed something. Callers set it to False."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._has_uncommitted_changes = False  # True if the open transaction may have changed something
        self.execute_wrappers.append(self._run_and_translate)

    def get_connection_params(self) -> dict[str, Any]:
        params: dict[str, Any] = super().get_connection_params()
        if self.timezone is UTC:
            params["context"] = with_utc_loader(params["context"])
        return params

    @property
    def pool(self) -> Any:
        pool = super().pool
        if pool is not None:
            pool.connection_class = WatchedConnection
        return pool

    def _configure_connection(self, connection: psycopg.Connection[Any]) -> bool:
        needs_commit: bool = super()._configure_connection(connection)  # type: ignore[misc]
        if self.alias == ALIAS:
            for function in on_connect:
                function(connection)
        return needs_commit

    def _run_and_translate(
        self, execute: Callable[..., Any], sql: object, params: object, many: bool, context: dict[str, Any]
    ) -> Any:
        with self._translate_temporary_errors():
            return self._run_and_record(execute, sql, params, many, context)

    @contextmanager
    def _translate_temporary_errors(self) -> Iterator[None]:
        """Raise each temporary error as an OperationalError. If the error ended the session, drop the session."""
        try:
            yield
        except Error as error:
            if (temporary := classify(error)) is None:
                raise
            if temporary.ends_session:
                self._drop_session()
            if isinstance(error, OperationalError):
                raise
            raise OperationalError(*error.args) from error.__cause__

    def _drop_session(self) -> None:
        """Close this connection, and replace the others in the pool, because they lead to the same server."""
        with suppress(Exception):
            if self.connection is not None:
                self.connection.close()
            if self.pool:
                self.pool.drain()
            if not self.in_atomic_block:
                self.close()

    def _run_and_record(
        self, execute: Callable[..., Any], sql: object, params: object, many: bool, context: dict[str, Any]
    ) -> Any:
        # True only for a single statement that reads or prepares. After a semicolon a second statement may write.
        if isinstance(sql, str) and sql.lstrip()[:6].upper() in ("SELECT", "PREPAR") and ";" not in sql:
            return execute(sql, params, many, context)
        if not self.autocommit:
            self._has_uncommitted_changes = True
            return execute(sql, params, many, context)
        with self._assume_changed():
            return execute(sql, params, many, context)

    @contextmanager
    def _assume_changed(self) -> Iterator[None]:
        before, self.may_have_changed = self.may_have_changed, True
        try:
            yield
        except Error as error:
            if getattr(error.__cause__, "sqlstate", None):
                self.may_have_changed = before
            raise

    def _commit(self) -> Any:
        changes, self._has_uncommitted_changes = self._has_uncommitted_changes, False
        with self._translate_temporary_errors(), self._assume_changed() if changes else nullcontext():
            return super()._commit()  # type: ignore[misc]

    def _rollback(self) -> Any:
        self._has_uncommitted_changes = False
        return super()._rollback()  # type: ignore[misc]

    def connect(self) -> None:
        self._has_uncommitted_changes = False
        super().connect()
