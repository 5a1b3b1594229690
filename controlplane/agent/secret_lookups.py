"""Finds the secrets of attempts before their code begins; main thread only, which waits for no command."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

import structlog

from controlplane.agent.child_process import ChildExit
from controlplane.agent.logs import decode_text
from controlplane.agent.secret_sources import SecretSources, SecretUnavailable, read_answer
from controlplane.agent.supervisor import Supervisor

log = structlog.get_logger()
TIMEOUT = 30.0  # seconds that a command may take


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
        """What is known at once; a command is asked for the others. Raises SecretUnavailable."""
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
                raise SecretUnavailable(f"the secret command could not be started: {error}") from None
            self._lookups[key] = Lookup(attempt, name, time.monotonic() + TIMEOUT)
        return found

    def awaits(self, attempt: str) -> bool:
        return any(lookup.attempt == attempt for lookup in self._lookups.values())

    def record_exit(self, child_exit: ChildExit) -> tuple[str, str, str | SecretUnavailable]:
        """The attempt, the name, and what was found."""
        lookup = self._lookups.pop(child_exit.key)
        try:
            if lookup.is_overdue:
                raise SecretUnavailable(f"the secret command took longer than {TIMEOUT:g} s for {lookup.name}")
            return lookup.attempt, lookup.name, read_answer(lookup.name, child_exit)
        except SecretUnavailable as unavailable:
            # What it complains of is for whoever runs this worker: the job's submitter has no business with it.
            why = child_exit.problem or decode_text(child_exit.stderr).strip()
            log.warning("Secret not found", attempt=lookup.attempt, name=lookup.name, why=why or str(unavailable))
            return lookup.attempt, lookup.name, unavailable

    def stop(self, attempt: str) -> None:
        """Nobody waits for it any more."""
        for key, lookup in self._lookups.items():
            if lookup.attempt == attempt:
                self._supervisor.kill_child(key)

    def enforce_timeout(self) -> None:
        now = time.monotonic()
        for key, lookup in self._lookups.items():
            if not lookup.is_overdue and now >= lookup.ends_at:
                lookup.is_overdue = self._supervisor.kill_child(key)

    def next_timeout_at(self) -> float | None:
        """Monotonic."""
        return min((lookup.ends_at for lookup in self._lookups.values() if not lookup.is_overdue), default=None)
