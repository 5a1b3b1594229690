"""Makes a process of the control plane known as a server, for as long as it lives.

Only the entry points of servers call `begin` (web.py, celery.py): commands, shells and tests are no servers.
To be imported once Django is set up.
"""

import math
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.util import Finalize

import structlog
from django.db import DEFAULT_DB_ALIAS, DatabaseError, InterfaceError, connection, connections

from controlplane.agent.backoff import again_within, answer_within, full_jitter
from controlplane.agent.client import Client, Refused, Unreachable
from controlplane.agent.options import VERSION
from controlplane.core.problems import Problem
from liveness.conf import conf
from liveness.services.presence import Presence
from liveness.states import ServerState, ServerType

log = structlog.get_logger()

LEAVE_WITHIN = 1.5  # seconds; a process that ends does not wait longer for a database that does not answer
LAST_BEAT_WITHIN = 0.5  # seconds; nor for a beat to itself that it does not hear any more


class Pulse(threading.Thread):
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
        limit = 2 * answer_within(conf().timeout, conf().heartbeat_interval)
        self.begin_to_beat()
        while not self.ending.wait(limit / 4):
            if time.monotonic() - self.began > limit and not (hung and hung.is_alive()):
                log.error(
                    f"{self.presence.name} is not heard", error=f"its beat hangs for {limit:g} s: another is begun"
                )
                hung = self.beating
                self.begin_to_beat()
        if self.beating is not None:
            self.beating.join(LAST_BEAT_WITHIN)
        try:
            self.presence.leave()
        except Exception as error:
            log.warning(f"{self.presence.name} could not say that it ends", error=first_line(error))
        connection.close()

    def begin_to_beat(self) -> None:
        self.began = math.inf
        self.beating = threading.Thread(target=self.beat_on, name="presence-beats", daemon=True)
        self.beating.start()

    def beat_on(self) -> None:
        use_connection_of_its_own()
        pause = 0.0
        while not self.ending.wait(pause) and self.beating is threading.current_thread():
            self.began = time.monotonic()
            pause = self.step()
            if self.beating is threading.current_thread():
                self.began = math.inf
        connection.close()

    def step(self) -> float:
        """One beat; seconds until the next."""
        try:
            pause = self.presence.beat(self.state)
        except Exception as error:
            self.failures += 1
            if self.failures == 1:
                foreseen = isinstance(error, DatabaseError | InterfaceError | Problem | Refused | Unreachable)
                log.error(f"{self.presence.name} is not heard", error=first_line(error), exc_info=not foreseen)
            with suppress(Exception):
                connection.close()  # it may be what is broken
            return full_jitter(self.failures, again_within(conf().timeout, conf().heartbeat_interval))
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
    own = connections.create_connection(DEFAULT_DB_ALIAS)
    own.settings_dict = {**own.settings_dict, "OPTIONS": {**own.settings_dict["OPTIONS"], "pool": False}}
    connections[DEFAULT_DB_ALIAS] = own


def first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0]


begun: dict[ServerType, Pulse] = {}


def begin(type: ServerType, name: str, itself: Callable[[], Client] | None = None) -> None:
    """Make this process known, once; `itself` is how it calls itself, if it is called at all.

    To be called after it was forked: threads stay behind.
    """
    if (pulse := begun.get(type)) is not None and pulse.is_alive():
        return
    begun[type] = Pulse(Presence(type, name, VERSION, itself))
    begun[type].start()
    # Unlike atexit, runs at the end of processes forked by multiprocessing (granian) and billiard (Celery) as well.
    Finalize(None, leave, exitpriority=0)


def terminating() -> None:
    """Say TERMINATING from the next beat on. For signal handlers: takes no lock."""
    for pulse in begun.values():
        pulse.state = ServerState.TERMINATING


def leave() -> None:
    """Say that this process has ended, if there is time."""
    for pulse in begun.values():
        pulse.leave()
