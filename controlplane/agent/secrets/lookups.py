"""Look up the secrets of attempts before their code starts.

Main thread only. It never waits for a secret command.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

import structlog

from controlplane.agent.from_code.logs import decode_text
from controlplane.agent.processes.child_process import ChildExit
from controlplane.agent.processes.machine_errors import MachineError
from controlplane.agent.processes.supervisor import Supervisor
from controlplane.agent.secrets.sources import SecretSources, SecretUnavailable, read_answer

log = structlog.get_logger()
TIMEOUT = 30.0  # seconds: the timeout of the secret command


@dataclass
class Lookup:
    attempt: str
    name: str
    ends_at: float  # monotonic
    is_overdue: bool = False


class SecretLookups:
    def __init__(self, supervisor: Supervisor, sources: SecretSources) -> None:
        self._supervisor, self._sources = supervisor, sources
        self._lookups: dict[str, Lookup] = {}  # by the key of the child that runs the command

    def __contains__(self, key: str) -> bool:
        return key in self._lookups

    def start(self, attempt: str, names: Iterable[str]) -> dict[str, str]:
        """Return the secrets that are known at once, and start a command for each of the others.

        Raise SecretUnavailable, or MachineError if this machine could not start the command.
        """
        found: dict[str, str] = {}
        missing = []
        for name in sorted(set(names)):
            if (value := self._sources.find(name)) is None:
                missing.append((name, self._sources.build_command(name)))
            else:
                found[name] = value
        for name, command in missing:
            key = f"secret:{attempt}:{name}"
            try:
                self._supervisor.start_child(key, command)
            except OSError as error:
                why = f"the secret command could not be started: {error}"
                raise MachineError(why, is_certain=True) from None
            self._lookups[key] = Lookup(attempt, name, time.monotonic() + TIMEOUT)
        return found

    def awaits(self, attempt: str) -> bool:
        return any(lookup.attempt == attempt for lookup in self._lookups.values())

    def record_exit(self, child_exit: ChildExit) -> tuple[str, str, str | SecretUnavailable | MachineError]:
        """Return the attempt, the name, and the value or error."""
        lookup = self._lookups.pop(child_exit.key)
        if child_exit.is_of_machine:
            why = f"the secret command could not be started: {child_exit.problem}"
            return lookup.attempt, lookup.name, MachineError(why)
        try:
            if lookup.is_overdue:
                raise SecretUnavailable(f"the secret command took longer than {TIMEOUT:g} s for {lookup.name}")
            return lookup.attempt, lookup.name, read_answer(lookup.name, child_exit)
        except SecretUnavailable as unavailable:
            # Log the command's own message for the operator of this worker. The submitter of the job must not see it.
            why = child_exit.problem or decode_text(child_exit.stderr).strip()
            log.warning("Secret not found", attempt=lookup.attempt, name=lookup.name, why=why or str(unavailable))
            return lookup.attempt, lookup.name, unavailable

    def stop(self, attempt: str) -> None:
        """Kill the commands of an attempt that no longer needs its secrets."""
        for key, lookup in self._lookups.items():
            if lookup.attempt == attempt:
                self._supervisor.kill_child(key)

    def enforce_timeout(self) -> None:
        now = time.monotonic()
        for key, lookup in self._lookups.items():
            if not lookup.is_overdue and now >= lookup.ends_at:
                lookup.is_overdue = self._supervisor.kill_child(key)

    def next_timeout_at(self) -> float | None:
        """Return when `enforce_timeout` is due (monotonic), or None."""
        return min((lookup.ends_at for lookup in self._lookups.values() if not lookup.is_overdue), default=None)
