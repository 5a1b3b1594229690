"""LISTEN and NOTIFY: one process of the control plane wakes the others when the database has new work for them.

Notifications only save time. Every waiting process also looks at intervals. So it costs only time if a notification is
lost, or if a pooler does not support LISTEN.
"""

import os
import threading
import time
from collections.abc import Callable
from functools import partial

import psycopg
import structlog
from django.db import DatabaseError, close_old_connections
from psycopg import sql

from controlplane.core.database import connection, make_direct_connection, transaction
from controlplane.core.database.silence import WatchedConnection

log = structlog.get_logger()

PAUSE = 0.01
"""Seconds between two notifications of a process. Calls of `announce` within them share the next notification."""
RECONNECT_AFTER = 1.0
"""Seconds before a listener that lost its connection connects again."""
PATIENCE = 5.0
"""Largest number of seconds until a closed listener has ended."""


class Announcer:
    """Send the notifications of this process in a separate thread, after the commit.

    A NOTIFY inside the transaction would make its commit wait for all other transactions that notify.
    """

    def __init__(self, channel: str) -> None:
        self._channel = channel
        self._wanted = threading.Event()
        self._process: int | None = None
        self._content = ""
        self.enabled = False
        """True in serving processes. Management commands do not notify; their changes are found at the next look."""

    def announce(self, content: str = "") -> None:
        """Notify after the commit of the open transaction, or now outside a transaction.

        If several announcements share one notification, it has the last content that is not empty.
        """
        if self.enabled and content:
            transaction.on_commit(partial(setattr, self, "_content", content))
        if self.enabled:
            transaction.on_commit(self._want)

    def _want(self) -> None:
        self._wanted.set()
        if self._process != os.getpid():  # a forked process does not inherit the thread
            self._process = os.getpid()
            threading.Thread(target=self._run, name=f"announces {self._channel}", daemon=True).start()

    def _run(self) -> None:
        while True:
            self._wanted.wait()
            self._wanted.clear()
            content, self._content = self._content, ""
            try:
                with connection.cursor() as cursor:
                    cursor.execute("select pg_notify(%s, %s)", [self._channel, content])
            except DatabaseError as error:
                log.debug("Not announced", channel=self._channel, why=str(error).strip())
            finally:
                close_old_connections()
            time.sleep(PAUSE)


class Listener(threading.Thread):
    """Call `on_notification` in this thread with the content of each notification, and with "" when it has connected.

    The call after a new connection is needed, because notifications may have been missed before it. The listener has
    its own connection outside the pool.
    """

    def __init__(self, channel: str, on_notification: Callable[[str], object]) -> None:
        super().__init__(name=f"listens to {channel}", daemon=True)
        self._channel, self._on_notification = channel, on_notification
        self._closed = threading.Event()

    def run(self) -> None:
        while not self._closed.is_set():
            try:
                self._listen()
            except (psycopg.Error, DatabaseError) as error:
                log.warning("Not listening: new work is found at the next look", why=str(error).strip().split("\n")[0])
            self._closed.wait(RECONNECT_AFTER)

    def close(self) -> None:
        self._closed.set()

    def _listen(self) -> None:
        options = {
            name: value for name, value in make_direct_connection().get_connection_params().items() if name != "pool"
        }
        own = {"application_name": "controlplane listener", "autocommit": True, "cursor_factory": None}
        with WatchedConnection.connect(**{**options, **own}) as listening:
            listening.execute(sql.SQL("listen {}").format(sql.Identifier(self._channel)))
            self._on_notification("")
            while not self._closed.is_set():
                listening.is_watched = False
                for notification in listening.notifies(timeout=PATIENCE):
                    self._on_notification(notification.payload)
                listening.is_watched = True
                listening.execute("select")  # check the connection, because a dead one would never deliver anything
