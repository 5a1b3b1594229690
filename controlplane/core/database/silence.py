"""Close connections to PostgreSQL that went silent, because a firewall dropped them or a proxy in between hangs.

TCP notices nothing while a machine in between acknowledges packets. So a thread checks each long wait. It asks
PostgreSQL over another connection whether the session is still running a statement. If not, no answer will come.
"""

import os
import socket
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, NamedTuple

import psycopg
import structlog

log = structlog.get_logger()

SUSPECT_AFTER = 1.5
"""Seconds that a wait lasts before the thread asks PostgreSQL about it."""
LOOK_INTERVAL = 0.5
"""Seconds between two checks. A wait must look silent in two checks, because an answer may be on its way."""
ASK_WITHIN = 2
"""Timeout in seconds of each step of a question to PostgreSQL."""
IDLE_FOR = 10.0
"""Seconds without a wait after which the thread ends."""
AT_WORK = """
    select pid from pg_stat_activity where pid = any(%s) and state in ('active', 'fastpath function call')
    union all select -pg_backend_pid()
"""


class WatchedConnection(psycopg.Connection[Any]):
    """Connection whose waits are watched. Set `is_watched` to False while no answer is expected, as in LISTEN."""

    is_watched = True
    made_with: tuple[str, dict[str, Any]] = ("", {})

    @classmethod
    def connect(cls, conninfo: str = "", **options: Any) -> "WatchedConnection":
        connection = super().connect(conninfo, **options)
        connection.made_with = conninfo, options
        return connection

    def wait(self, *args: Any, **options: Any) -> Any:
        if not self.is_watched:
            return super().wait(*args, **options)
        watch.begin(self)
        try:
            return super().wait(*args, **options)
        finally:
            watch.end(self)


class AskingConnection(psycopg.Connection[Any]):
    """Connection of the watch itself. Its own waits are limited to ASK_WITHIN seconds."""

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        return super().wait(gen, interval, ASK_WITHIN if timeout is None else timeout)


class Wait(NamedTuple):
    connection: WatchedConnection
    since: float  # monotonic clock


class SilenceWatch:
    """Record the waits of this process, and check them in a thread."""

    def __init__(self) -> None:
        self._waits: dict[int, Wait] = {}
        self._lock = threading.Lock()
        self._process: int | None = None  # a forked process does not inherit the thread
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._asking: AskingConnection | None = None

    def begin(self, connection: WatchedConnection) -> None:
        self._waits[id(connection)] = Wait(connection, time.monotonic())
        if self._thread is None or self._process != os.getpid():
            self._start()

    def end(self, connection: WatchedConnection) -> None:
        self._waits.pop(id(connection), None)

    def stop(self) -> None:
        """End the thread. Call this before the process forks."""
        thread = self._thread  # which forgets itself when it ends
        self._stopping.set()
        if thread is not None and self._process == os.getpid():
            thread.join(2 * ASK_WITHIN)

    def _start(self) -> None:
        if self._process != os.getpid():
            self._lock = threading.Lock()
        with self._lock:
            if self._thread is not None and self._process == os.getpid():
                return
            self._process, self._asking, self._stopping = os.getpid(), None, threading.Event()
            self._thread = threading.Thread(target=self._run, name="silence", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        suspected: dict[int, Wait] = {}
        busy_at = time.monotonic()
        while not self._stopping.wait(LOOK_INTERVAL):
            now = time.monotonic()
            if self._waits:
                busy_at = now
            elif now - busy_at > IDLE_FOR:
                break
            late = {key: wait for key, wait in list(self._waits.items()) if now - wait.since > SUSPECT_AFTER}
            if late:
                silent = self._find_silent(late)
            else:
                silent = {}
                self._close_asking()  # an idle session would keep others from dropping the database
            for key, wait in silent.items():
                if suspected.get(key) == wait and self._waits.get(key) == wait:
                    cut(wait)
            suspected = silent
        self._close_asking()
        with self._lock:
            self._thread = None
        if self._waits and not self._stopping.is_set():
            self._start()  # a wait has begun since

    def _find_silent(self, late: dict[int, Wait]) -> dict[int, Wait]:
        """Return the waits for which PostgreSQL runs no statement. Return none if PostgreSQL cannot be asked."""
        silent = {}
        try:
            at_work = self._ask(late.values())
        except (psycopg.Error, OSError) as error:
            log.debug("PostgreSQL could not be asked about waiting sessions", why=str(error).strip())
            self._close_asking()
            return {}
        for key, wait in late.items():
            with suppress(psycopg.Error):
                if wait.connection.info.backend_pid not in at_work:
                    silent[key] = wait
        return silent

    def _ask(self, waits: Iterable[Wait]) -> set[int]:
        """Return the ids of PostgreSQL processes that run a statement.

        Raise OSError behind a pooler: it hides the ids.
        """
        waits = list(waits)
        if self._asking is None:
            conninfo, options = waits[0].connection.made_with
            options = {name: value for name, value in options.items() if name not in ("context", "cursor_factory")}
            own = {"autocommit": True, "connect_timeout": ASK_WITHIN, "application_name": "controlplane watch"}
            self._asking = AskingConnection.connect(conninfo, **{**options, **own})
        pids = [wait.connection.info.backend_pid for wait in waits]
        rows = {pid for (pid,) in self._asking.execute(AT_WORK, [pids])}
        if -self._asking.info.backend_pid not in rows:
            raise OSError("There is a pooler between here and PostgreSQL")
        return rows

    def _close_asking(self) -> None:
        if self._asking is not None:
            self._asking.close()
            self._asking = None


def cut(wait: Wait) -> None:
    """End a wait. The connection fails as if PostgreSQL had closed it."""
    log.warning(
        "A connection to the database went silent: it is closed", seconds=round(time.monotonic() - wait.since, 1)
    )
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(wait.connection.fileno())) as own:
        own.shutdown(socket.SHUT_RDWR)


watch = SilenceWatch()
