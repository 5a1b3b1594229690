"""Runs the parts of a control plane in one terminal, and stops them in order."""

import os
import signal
import subprocess
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue

from controlplane.standalone.output import SYSTEM, Output
from controlplane.standalone.respawn import is_answering, make_child_die_with_us

ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LAST_WORDS = 5.0
"""Seconds for what a part has printed, where something outside its process group still holds its output."""


@dataclass(frozen=True)
class Part:
    """One process and how it is stopped; those of the lowest `stage` go first.

    The times are seconds since everything began to stop: what one stage does not need is left to the next. `env` is
    added to our environment, or all that it gets.
    """

    name: str
    command: list[str]
    stage: int
    killed_after: float
    insisted_after: float = float("inf")  # a second SIGTERM
    env: dict[str, str] = field(default_factory=dict)
    inherits: bool = True
    cwd: Path | None = None


class Supervisor:
    """Runs all parts until one of them ends or a signal comes, then stops them one stage after the other."""

    def __init__(self, parts: list[Part], *, ready: str, greeting: str) -> None:
        """Says `greeting` once the URL `ready` answers."""
        self.parts, self.ready, self.greeting = parts, ready, greeting
        self.events: SimpleQueue[Part | signal.Signals] = SimpleQueue()  # which a signal handler may put into
        self.output = Output([part.name for part in parts], unread=lambda: self.events.put(signal.SIGTERM))
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.failed: list[str] = []
        self.is_stopping = False

    def run(self) -> int:
        """Until everything has ended. Returns 0 when it was asked to end and no part failed to, else 1."""
        for signum in ENDINGS:
            signal.signal(signum, lambda signum, _: self.events.put(signal.Signals(signum)))
        try:
            # All of them before there are threads: what forks copies one thread, and the locks of all.
            for part in self.parts:
                self.processes[part.name] = self.start(part)
            watches = [threading.Thread(target=self.watch, args=(part,), daemon=True) for part in self.parts]
            for thread in (*watches, threading.Thread(target=self.greet, daemon=True)):
                thread.start()
            self.note_first_event(self.wait_for_event())
            self.is_stopping = True
            began = time.monotonic()
            for stage in sorted({part.stage for part in self.parts}):
                self.stop([part for part in self.parts if part.stage == stage], began)
            for thread in watches:
                thread.join()
        finally:
            for name in self.processes:
                self.send(name, signal.SIGTERM)  # unless all went well there are some
        return 1 if self.failed else 0

    def wait_for_event(self) -> Part | signal.Signals:
        # Not without end: a signal that comes a moment before a wait does not end it, and its handler runs after that.
        while True:
            with suppress(Empty):
                return self.events.get(timeout=1)

    def start(self, part: Part) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            part.command,
            env={**(os.environ if part.inherits else {}), **part.env},
            cwd=part.cwd,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # a Ctrl-C is our business
            preexec_fn=make_child_die_with_us(signal.SIGTERM),
        )
        self.output.say(SYSTEM, f"{part.name} started (pid={process.pid})")
        return process

    def watch(self, part: Part) -> None:
        """Until it has ended, and its process group with it, whatever ended it."""
        process = self.processes[part.name]
        reader = threading.Thread(target=self.read, args=(part.name, process), daemon=True)
        reader.start()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # not reaped: the number stays the group's
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        reader.join(LAST_WORDS)
        self.output.say(SYSTEM, f"{part.name} stopped (rc={process.wait()})")
        self.events.put(part)

    def read(self, name: str, process: subprocess.Popen[bytes]) -> None:
        for line in process.stdout or ():
            self.output.say(name, line.decode(errors="replace"))

    def greet(self) -> None:
        while not self.is_stopping and not is_answering(self.ready):
            time.sleep(0.1)
        if not self.is_stopping:
            self.output.say(SYSTEM, self.greeting)

    def note_first_event(self, event: Part | signal.Signals) -> None:
        if isinstance(event, Part):
            self.failed.append(event.name)
            self.output.say(SYSTEM, f"{event.name} has ended, so everything is stopped")
        else:
            self.output.say(SYSTEM, f"{event.name} received")

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
                    self.output.say(SYSTEM, f"{part.name} does not end: killed")
                self.send(part.name, signum)
            time.sleep(0.05)

    def send(self, name: str, signum: signal.Signals) -> None:
        # Not by Popen.send_signal, nor poll: they reap it before its group is killed.
        if self.is_running(name):
            with suppress(ProcessLookupError):
                os.kill(self.processes[name].pid, signum)

    def is_running(self, name: str) -> bool:
        return self.processes[name].returncode is None
