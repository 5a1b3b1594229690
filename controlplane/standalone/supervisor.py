"""Runs the parts of a control plane in one terminal, and stops them in order."""

import datetime
import os
import signal
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from honcho import process
from honcho.manager import SYSTEM_PRINTER_NAME, Manager
from honcho.printer import Message, Printer

from controlplane.standalone.respawn import die_with_parent, is_answering, make_child_die_with_us

TERMINATIONS = {signal.SIGINT, signal.SIGTERM}


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


class Child(process.Popen):
    """Not through a shell; ends when its supervisor does, and takes its process group along, whatever ends it."""

    def __init__(self, command: list[str], **options: Any) -> None:
        super().__init__(command, shell=False, preexec_fn=make_child_die_with_us(signal.SIGTERM), **options)
        threading.Thread(target=self.kill_group_at_exit, daemon=True).start()

    def kill_group_at_exit(self) -> None:
        with suppress(OSError):
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)  # not reaped: the number stays the group's
            os.killpg(self.pid, signal.SIGKILL)


class Watched(process.Process):
    """honcho runs this in a process of its own, which reads what the child prints."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._child_ctor = Child
        self._supervisor = os.getpid()

    def run(self, events: Any = None, ignore_signals: bool = False) -> None:
        for signum in TERMINATIONS:  # a Ctrl-C is the supervisor's business
            signal.signal(signum, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, TERMINATIONS)
        die_with_parent(self._supervisor, signal.SIGKILL)
        super().run(events, ignore_signals)


class Output(Printer):
    """When nobody reads any more (`| head`, `| tee` at a Ctrl-C), everything is stopped, in order and unseen."""

    def write(self, message: Message) -> None:
        try:
            super().write(message)
        except BrokenPipeError:
            self.output = open(os.devnull, "w")  # noqa: SIM115
            signal.raise_signal(signal.SIGTERM)


class Supervisor(Manager):
    """honcho, but it stops the parts one stage after the other, each part with its own deadline."""

    _terminating: bool

    def __init__(self, parts: list[Part], *, ready: str, greeting: str) -> None:
        """Says `greeting` once the URL `ready` answers."""
        super().__init__(Output())
        self._process_ctor = Watched
        self.parts, self.ready, self.greeting = parts, ready, greeting
        self.failed: list[str] = []
        for part in parts:
            env = {**(os.environ if part.inherits else {}), **part.env}
            self.add_process(part.name, part.command, env=env, cwd=part.cwd)

    def run(self) -> int:
        """Until everything has ended. Returns 0 when it was asked to end and no part failed to, else 1."""
        signal.signal(signal.SIGHUP, lambda *_: signal.raise_signal(signal.SIGTERM))
        try:
            self.loop()
        finally:
            for entry in self._processes.values():
                if (watched := entry.get("process")) and watched.is_alive():
                    watched.kill()  # and what it watches gets SIGTERM
        return 1 if self.failed else 0

    def print_greeting(self) -> None:
        while not self._terminating and not is_answering(self.ready):
            time.sleep(0.1)
        if not self._terminating:
            self.print_message(self.greeting)

    def print_message(self, text: str) -> None:
        # Through the loop, which alone prints.
        self.events.put(Message("line", text, datetime.datetime.now(), SYSTEM_PRINTER_NAME, None))

    def _start(self) -> None:
        # A Ctrl-C in a process that is just being forked would find our handlers there.
        signal.pthread_sigmask(signal.SIG_BLOCK, TERMINATIONS)
        try:
            super()._start()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, TERMINATIONS)
        threading.Thread(target=self.print_greeting, daemon=True).start()

    def terminate(self) -> None:
        """Begin to stop everything. Called on a signal, and when a part has ended by itself."""
        if self._terminating:
            return
        self._terminating = True
        for part in self.parts:
            if not self.is_running(part):
                self.failed.append(part.name)
                self.print_message(f"{part.name} has ended, so everything is stopped")
        threading.Thread(target=self.stop_in_order, daemon=True).start()

    def kill(self) -> None:
        """honcho's own deadline, one for all, is not used."""

    def stop_in_order(self) -> None:
        began = time.monotonic()
        for stage in sorted({part.stage for part in self.parts}):
            self.stop_parts([part for part in self.parts if part.stage == stage], began)

    def stop_parts(self, parts: list[Part], began: float) -> None:
        due = [(0.0, signal.SIGTERM, part) for part in parts]
        due += [(part.insisted_after, signal.SIGTERM, part) for part in parts]
        due += [(part.killed_after, signal.SIGKILL, part) for part in parts]
        while any(map(self.is_running, parts)) and due:
            for step in [
                step for step in due if step[0] <= time.monotonic() - began and "pid" in self.process_entry(step[2])
            ]:
                due.remove(step)
                if self.is_running(step[2]):
                    self.send_signal(step[2], step[1])
            time.sleep(0.05)

    def send_signal(self, part: Part, signum: signal.Signals) -> None:
        pid = self.process_entry(part)["pid"]
        if signum == signal.SIGKILL:
            self.failed.append(part.name)
            self.print_message(f"{part.name} does not end: killed")
        with suppress(ProcessLookupError):
            os.kill(pid, signum)

    def is_running(self, part: Part) -> bool:
        return "returncode" not in self.process_entry(part)

    def process_entry(self, part: Part) -> dict[str, Any]:
        """What honcho knows of it: `pid` once started, `returncode` once ended."""
        entry: dict[str, Any] = self._processes[part.name]
        return entry
