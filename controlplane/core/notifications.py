"""By LISTEN and NOTIFY one process of the control plane tells the others that there is something to look for.

That saves time and carries no state: whoever waits looks now and then all the same, so that one that is lost, or a
pooler that has no LISTEN, costs time and nothing else.
"""

import os
import threading
import time
from collections.abc import Callable

import psycopg
import structlog
from django.db import DatabaseError, close_old_connections
from psycopg import sql

from controlplane.core.database import connection, transaction

log = structlog.get_logger()

PAUSE = 0.01
"""Seconds between two notifications of a process: what is announced meanwhile shares the next."""
RECONNECT_AFTER = 1.0
"""Seconds after which a listener that lost its connection makes another."""
PATIENCE = 5.0
"""Seconds after which a listener that is closed has ended, at the latest."""


class Announcer:
    """Notifies for a process, in a thread of its own: after the commit, and never inside the transaction, which would
    wait there for all others that notify."""

    def __init__(self, channel: str) -> None:
        self._channel = channel
        self._wanted = threading.Event()
        self._process: int | None = None
        self.enabled = False
        """Set by processes that serve; what a command did is found by looking."""

    def announce(self) -> None:
        """After the commit of the transaction that is open, or now."""
        if self.enabled:
            transaction.on_commit(self._want)

    def _want(self) -> None:
        self._wanted.set()
        if self._process != os.getpid():  # a thread is not forked along
            self._process = os.getpid()
            threading.Thread(target=self._run, name=f"announces {self._channel}", daemon=True).start()

    def _run(self) -> None:
        while True:
            self._wanted.wait()
            self._wanted.clear()
            try:
                with connection.cursor() as cursor:
                    cursor.execute("select pg_notify(%s, '')", [self._channel])
            except DatabaseError as error:
                log.debug("Not announced", channel=self._channel, why=str(error).strip())
            finally:
                close_old_connections()
            time.sleep(PAUSE)


class Listener(threading.Thread):
    """Calls `on_notification` in its own thread for each notification, and whenever it has a connection again, for it
    may have missed some. It keeps a connection of its own, outside of the pool."""

    def __init__(self, channel: str, on_notification: Callable[[], object]) -> None:
        super().__init__(name=f"listens to {channel}", daemon=True)
        self._channel, self._on_notification = channel, on_notification
        self._closed = threading.Event()

    def run(self) -> None:
        while not self._closed.is_set():
            try:
                self._listen()
            except (psycopg.Error, DatabaseError) as error:
                log.warning("Not listening: work is found by looking", why=str(error).strip().split("\n")[0])
            self._closed.wait(RECONNECT_AFTER)

    def close(self) -> None:
        self._closed.set()

    def _listen(self) -> None:
        options = {name: value for name, value in connection.get_connection_params().items() if name != "pool"}
        own = {"application_name": "controlplane listener", "autocommit": True, "cursor_factory": None}
        with psycopg.connect(**{**options, **own}) as listening:
            listening.execute(sql.SQL("listen {}").format(sql.Identifier(self._channel)))
            self._on_notification()
            while not self._closed.is_set():
                for _ in listening.notifies(timeout=PATIENCE):
                    self._on_notification()
