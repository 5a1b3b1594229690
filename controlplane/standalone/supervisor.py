"""Supervisor that starts the control plane's parts in one terminal, restarts them, and stops them in order."""

import os
import pwd
import signal
import subprocess
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from controlplane.standalone.output import SYSTEM, ProcessOutput
from controlplane.standalone.processes import is_answering, make_child_die_with_us

ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LAST_WORDS = 5.0
"""Seconds for reading the rest of a part's output, in case a process outside its group keeps the pipe open."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
"""Seconds between the end of a part and its restart. The pause doubles each time."""
STEADY_AFTER = 60.0
"""A part that ran for so many seconds begins with the first pause again."""
WRONG_USAGE = 2
"""Exit status of a wrong command line. A restart would not help."""


@dataclass(frozen=True)
class Part:
    """Process of the control plane, and how it is stopped. Parts of the lowest `stage` stop first.

    Times are in seconds since the stop began, so a stage leaves its unused time to the next stage. `env` is added to
    our environment. If `inherits` is False, `env` is the whole environment.
    """

    name: str
    command: list[str]
    stage: int
    killed_after: float
    insisted_after: float = float("inf")  # a second SIGTERM
    env: dict[str, str] = field(default_factory=dict)
    inherits: bool = True
    cwd: Path | None = None
    is_client: bool = False
    """True if the part starts only when the web server answers."""
    dies_by: signal.Signals = signal.SIGTERM
    """Signal that the part gets if the supervisor is killed."""
    user: str | None = None
    umask: int = -1


@dataclass(frozen=True)
class Ready:
    """Event that means: the web server answers."""


class StandaloneSupervisor:
    """Run all parts until a signal arrives, then stop them stage by stage.

    A part that ends is restarted after a pause, unless its exit status means a wrong command line.
    """

    def __init__(self, parts: list[Part], *, ready: str, greeting: str) -> None:
        """Set up the parts. `greeting` is printed when the URL `ready` answers."""
        self.parts, self.ready, self.greeting = parts, ready, greeting
        # Signal handlers put events too, so the queue must be reentrant.
        self.events: SimpleQueue[Part | Ready | signal.Signals] = SimpleQueue()
        self.output = ProcessOutput([part.name for part in parts], unread=lambda: self.events.put(signal.SIGTERM))
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.watches: list[threading.Thread] = []
        self.began_at: dict[str, float] = {}  # monotonic clock, by name of the part, as the next two
        self.due_at: dict[str, float] = {}
        self.pauses: dict[str, float] = {}
        self.failed: list[str] = []
        self.is_stopping = False

    def run(self) -> int:
        """Run until everything has ended. Return 0 if a signal stopped it and no part failed, otherwise 1."""
        for signum in ENDINGS:
            signal.signal(signum, lambda signum, _: self.events.put(signal.Signals(signum)))
        try:
            for part in self.parts:
                if not part.is_client:
                    self.begin(part)
            threading.Thread(target=self.greet, daemon=True).start()
            self.supervise()
            self.is_stopping = True
            began = time.monotonic()
            for stage in sorted({part.stage for part in self.parts}):
                self.stop([part for part in self.parts if part.stage == stage], began)
            for thread in self.watches:
                thread.join()
        finally:
            for name in self.processes:
                self.send(name, signal.SIGTERM)  # parts are still running here only after an error
        return 1 if self.failed else 0

    def supervise(self) -> None:
        """Start due parts until a signal arrives or a part cannot run at all."""
        while True:
            match self.wait_for_event():
                case Ready():
                    self.due_at |= {part.name: 0.0 for part in self.parts if part.is_client}
                case signal.Signals() as signum:
                    return self.output.show(SYSTEM, f"{signum.name} received")
                case Part() as part if self.processes[part.name].returncode == WRONG_USAGE:
                    self.failed.append(part.name)
                    return self.output.show(SYSTEM, f"{part.name} cannot run, so everything is stopped")
                case Part() as part:
                    self.plan_restart(part)
            # Start it in this thread, because a child gets its signal when the thread that started it ends.
            for part in self.parts:
                if self.due_at.get(part.name, float("inf")) <= time.monotonic():
                    del self.due_at[part.name]
                    self.begin(part)

    def plan_restart(self, part: Part) -> None:
        status, now = self.processes[part.name].returncode, time.monotonic()
        is_new = now - self.began_at[part.name] > STEADY_AFTER
        pause = FIRST_PAUSE if is_new else self.pauses.get(part.name, FIRST_PAUSE)
        self.due_at[part.name], self.pauses[part.name] = now + pause, min(2 * pause, LONGEST_PAUSE)
        ending = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        self.output.show(SYSTEM, f"{part.name} {ending}; starting it again in {pause:g} s")

    def wait_for_event(self) -> Part | Ready | signal.Signals | None:
        # The wait is limited, because a signal just before it does not interrupt it. The signal's handler then runs
        # after the wait.
        until = min([1.0, *(due - time.monotonic() for due in self.due_at.values())])
        with suppress(Empty):
            return self.events.get(timeout=max(0.01, until))
        return None

    def begin(self, part: Part) -> None:
        self.began_at[part.name] = time.monotonic()
        process = self.processes[part.name] = self.start(part)
        self.watches = [thread for thread in self.watches if thread.is_alive()]
        self.watches.append(threading.Thread(target=self.watch, args=(part, process), daemon=True))
        self.watches[-1].start()

    def start(self, part: Part) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            part.command,
            env={**(os.environ if part.inherits else {}), **part.env},
            cwd=part.cwd,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C goes to the supervisor only
            preexec_fn=make_child_die_with_us(part.dies_by),
            umask=part.umask,
            **account_options(part.user),
        )
        self.output.show(SYSTEM, f"{part.name} started (pid={process.pid})")
        return process

    def watch(self, part: Part, process: subprocess.Popen[bytes]) -> None:
        """Wait until the process has ended, then kill its process group, and report the end."""
        reader = threading.Thread(target=self.read, args=(part.name, process), daemon=True)
        reader.start()
        # WNOWAIT does not reap the process, so the number of its group is not reused.
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        reader.join(LAST_WORDS)
        self.output.show(SYSTEM, f"{part.name} stopped (rc={process.wait()})")
        self.events.put(part)

    def read(self, name: str, process: subprocess.Popen[bytes]) -> None:
        for line in process.stdout or ():
            self.output.show(name, line.decode(errors="replace"))

    def greet(self) -> None:
        while not self.is_stopping and not is_answering(self.ready):
            time.sleep(0.1)
        if not self.is_stopping:
            self.output.show(SYSTEM, self.greeting)
            self.events.put(Ready())

    def stop(self, parts: list[Part], began: float) -> None:
        due = [(0.0, signal.SIGTERM, part) for part in parts]
        due += [(part.insisted_after, signal.SIGTERM, part) for part in parts]
        due += [(part.killed_after, signal.SIGKILL, part) for part in parts]
        while any(self.is_running(part.name) for part in parts):
            for step in [step for step in due if step[0] <= time.monotonic() - began]:
                due.remove(step)
                _, signum, part = step
                if self.is_running(part.name) and signum == signal.SIGKILL:
                    self.failed.append(part.name)
                    self.output.show(SYSTEM, f"{part.name} does not end, so it is killed")
                self.send(part.name, signum)
            time.sleep(0.05)

    def send(self, name: str, signum: signal.Signals) -> None:
        # Popen.send_signal and poll are not used, because they would reap the process before its group is killed.
        if self.is_running(name):
            with suppress(ProcessLookupError):
                os.kill(self.processes[name].pid, signum)

    def is_running(self, name: str) -> bool:
        process = self.processes.get(name)
        return process is not None and process.returncode is None


def account_options(user: str | None) -> dict[str, Any]:
    """Return the Popen options with which root starts a process as another user."""
    if user is None:
        return {}
    account = pwd.getpwnam(user)
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
