"""Makes a process of the control plane known as a server, for as long as it lives.

Only the entry points of servers call `register_process` (web.py, celery.py): commands, shells and tests are no servers.
To be imported once Django is set up.
"""

import math
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.util import Finalize

import structlog
from django.db import DatabaseError, InterfaceError, connections

from controlplane.agent.backoff import full_jitter, heartbeat_answer_timeout, heartbeat_retry_window
from controlplane.agent.client import Client, Refused, Unreachable
from controlplane.agent.options import VERSION
from controlplane.core.database import ALIAS, connection
from controlplane.core.problems import Problem
from controlplane.observability import alert_watch
from liveness.conf import conf
from liveness.services.presence import Presence
from liveness.states import ServerState, ServerType

log = structlog.get_logger()

LEAVE_WITHIN = 1.5  # seconds; a process that ends does not wait longer for a database that does not answer
LAST_BEAT_WITHIN = 0.5  # seconds; nor for a beat to itself that it does not hear any more


class PresenceThread(threading.Thread):
    """Beats, whatever happens; a failure is its own affair and never the process's.

    The beats are another thread's, which may hang: over a connection that is frozen, which no timeout of TCP ends. Then
    one more takes over; not a third, for what hangs two is the database.
    """

    def __init__(self, presence: Presence) -> None:
        super().__init__(name="presence", daemon=True)
        self.presence = presence
        self.state = ServerState.RUNNING
        self.failures = 0
        self.ending = threading.Event()
        self.beating: threading.Thread | None = None
        self.began = math.inf  # the beat that is under way; of the monotonic clock

    def run(self) -> None:
        use_connection_of_its_own()
        hung: threading.Thread | None = None
        limit = 2 * heartbeat_answer_timeout(conf().timeout, conf().heartbeat_interval)
        self.start_beating()
        while not self.ending.wait(limit / 4):
            if time.monotonic() - self.began > limit and not (hung and hung.is_alive()):
                log.error(
                    f"{self.presence.name} is not heard", error=f"its beat hangs for {limit:g} s: another is begun"
                )
                hung = self.beating
                self.start_beating()
        if self.beating is not None:
            self.beating.join(LAST_BEAT_WITHIN)
        try:
            self.presence.leave()
        except Exception as error:
            log.warning(f"{self.presence.name} could not say that it ends", error=first_error_line(error))
        connection.close()

    def start_beating(self) -> None:
        self.began = math.inf
        self.beating = threading.Thread(target=self.beat_until_ended, name="presence-beats", daemon=True)
        self.beating.start()

    def beat_until_ended(self) -> None:
        use_connection_of_its_own()
        pause = 0.0
        while not self.ending.wait(pause) and self.beating is threading.current_thread():
            self.began = time.monotonic()
            pause = self.beat_once()
            if self.beating is threading.current_thread():
                self.began = math.inf
        connection.close()

    def beat_once(self) -> float:
        """One beat; seconds until the next."""
        try:
            pause = self.presence.beat(self.state)
        except Exception as error:
            self.failures += 1
            if self.failures == 1:
                foreseen = isinstance(error, DatabaseError | InterfaceError | Problem | Refused | Unreachable)
                log.error(f"{self.presence.name} is not heard", error=first_error_line(error), exc_info=not foreseen)
            with suppress(Exception):
                connection.close()  # it may be what is broken
            return full_jitter(self.failures, heartbeat_retry_window(conf().timeout, conf().heartbeat_interval))
        if self.failures:
            log.info(f"{self.presence.name} is heard again", failures=self.failures)
            self.failures = 0
        return pause

    def leave(self) -> None:
        self.ending.set()
        if self.is_alive():
            self.join(LEAVE_WITHIN)


def use_connection_of_its_own() -> None:
    """In this thread: outside the pool, so that requests and heartbeats never wait for each other's connection."""
    own = connections.create_connection(ALIAS)
    own.settings_dict = {**own.settings_dict, "OPTIONS": {**own.settings_dict["OPTIONS"], "pool": False}}
    connections[ALIAS] = own


def first_error_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0]


presence_threads: dict[ServerType, PresenceThread] = {}


def register_process(type: ServerType, name: str, itself: Callable[[], Client] | None = None) -> None:
    """Make this process known, once; `itself` is how it calls itself, if it is called at all.

    To be called after it was forked: threads stay behind.
    """
    if (pulse := presence_threads.get(type)) is not None and pulse.is_alive():
        return
    presence_threads[type] = PresenceThread(Presence(type, name, VERSION, itself))
    presence_threads[type].start()
    if type == ServerType.WEBSERVER:
        alert_watch.begin_watch()
    # Unlike atexit, runs at the end of processes forked by multiprocessing (granian) and billiard (Celery) as well.
    Finalize(None, deregister_process, exitpriority=0)


def announce_termination() -> None:
    """Say TERMINATING from the next beat on. For signal handlers: takes no lock."""
    for pulse in presence_threads.values():
        pulse.state = ServerState.TERMINATING


def deregister_process() -> None:
    """Say that this process has ended, if there is time."""
    for pulse in presence_threads.values():
        pulse.leave()
