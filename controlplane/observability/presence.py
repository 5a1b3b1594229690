"""Register a process of the control plane as a server while it runs.

Only the entry points of servers call `register_process` (web.py, celery.py). Commands, shells and tests are not
servers. Import this module after Django is set up.
"""

import math
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.util import Finalize
from typing import Any

import structlog
from django.db import DatabaseError, InterfaceError, connections

from controlplane.agent.api.backoff import full_jitter, heartbeat_answer_timeout, heartbeat_retry_window
from controlplane.agent.api.client import AgentClient, Refused, Unreachable
from controlplane.agent.version import VERSION
from controlplane.core.database import ALIAS, connection, make_connection_outside_pool
from controlplane.core.problems import Problem
from controlplane.core.program import is_own_site
from controlplane.observability import alert_watch
from liveness.conf import conf
from liveness.services import failover
from liveness.services.presence import Presence
from liveness.services.signing_key import AnotherKey
from liveness.states import ServerState, ServerType

log = structlog.get_logger()

LEAVE_WITHIN = 1.5  # seconds; an ending process does not wait longer for a database that does not answer
LAST_BEAT_WITHIN = 0.5  # seconds; it does not wait longer for its last heartbeat to itself, either


class PresenceThread(threading.Thread):
    """Thread that sends heartbeats. Its failures never affect the process.

    A second thread sends the heartbeats. It may hang on a frozen connection that no TCP timeout ends. Then another
    thread takes over. There is no third thread: if two hang, the database itself hangs.
    """

    def __init__(self, presence: Presence) -> None:
        super().__init__(name="presence", daemon=True)
        self.presence = presence
        self.state = ServerState.RUNNING
        self.failures = 0
        self.ending = threading.Event()
        self.beating: threading.Thread | None = None
        self.began = math.inf  # start of the running heartbeat, on the monotonic clock

    def run(self) -> None:
        use_connection_of_its_own()
        hung: threading.Thread | None = None
        limit = 2 * heartbeat_answer_timeout(conf().timeout, conf().heartbeat_interval)
        self.start_beating()
        while not self.ending.wait(limit / 4):
            if time.monotonic() - self.began > limit and not (hung and hung.is_alive()):
                log.error(
                    f"{self.presence.name} cannot heartbeat", error=f"a heartbeat hangs for {limit:g} s; trying another"
                )
                hung = self.beating
                self.start_beating()
        if self.beating is not None:
            self.beating.join(LAST_BEAT_WITHIN)
        try:
            self.presence.leave()
        except Exception as error:
            log.warning(f"{self.presence.name} could not report its end", error=first_error_line(error))
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
        """Send one heartbeat. Return the seconds until the next."""
        began = time.monotonic()
        try:
            failover.compare_timeline()
            pause = self.presence.beat(self.state)
        except AnotherKey as error:
            end_process(error)
            return conf().heartbeat_interval
        except Exception as error:
            self.failures += 1
            if self.failures == 1:
                foreseen = isinstance(error, DatabaseError | InterfaceError | Problem | Refused | Unreachable)
                log.error(
                    f"{self.presence.name} cannot heartbeat", error=first_error_line(error), exc_info=not foreseen
                )
            with suppress(Exception):
                connection.close()  # close the connection, because it may be the cause
            # As in an agent, the next try starts within the window, however long this try took.
            window = heartbeat_retry_window(conf().timeout, conf().heartbeat_interval)
            return full_jitter(self.failures, max(0.0, window - (time.monotonic() - began)))
        if self.failures:
            log.info(f"{self.presence.name} sends heartbeats again", failures=self.failures)
            self.failures = 0
        return pause

    def leave(self) -> None:
        self.ending.set()
        if self.is_alive():
            self.join(LEAVE_WITHIN)


def use_connection_of_its_own() -> None:
    """Give this thread a connection outside the pool, so that requests and heartbeats do not wait for each other."""
    connections[ALIAS] = make_connection_outside_pool()


def end_process(error: AnotherKey) -> None:
    """End a process whose key differs from its database's. A host project's process continues."""
    log.critical("This process is not part of the control plane of its database", error=str(error))
    if is_own_site():
        os.kill(os.getpid(), signal.SIGTERM)


def first_error_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0]


presence_threads: dict[ServerType, PresenceThread] = {}


def register_process(
    type: ServerType, name: str, itself: Callable[[], AgentClient] | None = None, **identity: Any
) -> None:
    """Register this process as a server, once.

    `itself` returns a client that calls this process, if the process can be called. `identity` has the `instance_id`
    and the `pid` of the server that this process belongs to. Call this function after the fork, because threads are not
    inherited.
    """
    if (pulse := presence_threads.get(type)) is not None and pulse.is_alive():
        return
    presence_threads[type] = PresenceThread(Presence(type, name, VERSION, itself, **identity))
    presence_threads[type].start()
    if type == ServerType.WEBSERVER:
        alert_watch.begin_watch()
    # Unlike atexit, this also runs at the end of processes forked by multiprocessing (granian) and billiard (Celery).
    Finalize(None, deregister_process, exitpriority=0)


def announce_termination() -> None:
    """Report TERMINATING from the next heartbeat on. Takes no lock, so signal handlers may call it."""
    for pulse in presence_threads.values():
        pulse.state = ServerState.TERMINATING


def deregister_process() -> None:
    """Report that this process has ended, if there is time."""
    for pulse in presence_threads.values():
        pulse.leave()
