"""What the user says, in `protect(…)` or in the environment."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields, replace
from typing import Any
from weakref import WeakKeyDictionary

from controlplane.agent.client import check_address

OFF = "off"
RECORDINGS = ("servers", "notable", "everything")
WHEN_STUCK = ("flag", "cordon")


class Unset(int):
    """False as the default of `task_acks_late`, told by its type from a False that somebody wrote."""


UNSET = Unset(0)


@dataclass(frozen=True)
class Options:
    """Seconds unless it says otherwise. None: the control plane's own setting."""

    url: str = ""
    token: str = ""
    cluster: str = "default"
    name: str | None = None  # of the server; default: the worker's node name
    record: str = "notable"  # "servers": no task is reported; "notable": the long, failed, retried and lost ones
    show_arguments: bool = False
    jobs: bool = True  # take jobs of `{"type": "celery"}`
    max_resubmissions: int = 3  # losses of one task while its code ran, after which it is quarantined
    condemned_for: float = 2.0  # between the mark on a lost worker's messages and their return
    stuck_after: float = 60.0  # nothing received for so long, with messages waiting and room for them
    when_stuck: str = "flag"
    heartbeat_interval: float | None = None
    timeout: float | None = None
    grace: float | None = None  # the longest warm shutdown

    @classmethod
    def given(cls, **arguments: Any) -> dict[str, Any]:
        """The arguments that say something; raises TypeError for an unknown one."""
        known = {field.name for field in fields(cls)}
        if unknown := set(arguments) - known:
            raise TypeError(f"protect() takes no {', '.join(sorted(unknown))}; it takes {', '.join(sorted(known))}")
        return {name: value for name, value in arguments.items() if value is not None}

    @classmethod
    def read(cls, given: dict[str, Any], environment: dict[str, str] | os._Environ[str] = os.environ) -> Options:
        """Raises ValueError with a sentence for the user."""
        options = cls()
        for field in fields(cls):
            variable = variable_of(field.name)
            value = given.get(field.name, environment.get(variable))
            if value is None:
                continue
            try:
                options = replace(options, **{field.name: _parsed(field.name, value)})
            except ValueError as error:
                raise ValueError(f"{field.name} ({variable}): {error}") from None
        return options._checked()

    @property
    def is_off(self) -> bool:
        return self.url.lower() == OFF

    def config(self) -> dict[str, Any]:
        """What the server asks to be judged by. At once: messages are redelivered, there is nothing to wait for."""
        asked = {
            "heartbeat_interval_seconds": self.heartbeat_interval,
            "timeout_seconds": self.timeout,
            "termination_grace_period_seconds": self.grace,
        }
        chosen = {key: value for key, value in asked.items() if value is not None}
        return {"worker_task_restart_strategy": "IMMEDIATELY", **chosen}

    def _checked(self) -> Options:
        if self.is_off:
            return self
        missing = [name for name in ("url", "token") if not getattr(self, name)]
        if missing:
            names = " and ".join(variable_of(name) for name in missing)
            raise ValueError(f"protect() needs {names} (CONTROLPLANE_URL={OFF} runs this worker unprotected)")
        check_address(self.url)
        for name, choices in (("record", RECORDINGS), ("when_stuck", WHEN_STUCK)):
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} ({variable_of(name)}): {getattr(self, name)!r} is none of {choices}")
        if self.max_resubmissions < 0 or self.condemned_for < 1 or self.stuck_after <= 0:
            raise ValueError("max_resubmissions is at least 0, condemned_for at least 1 s, stuck_after more than 0 s")
        return self


def variable_of(name: str) -> str:
    """The environment variable of an option."""
    return f"CONTROLPLANE_{name.upper()}" if name in ("url", "token") else f"CONTROLPLANE_CELERY_{name.upper()}"


def _parsed(name: str, value: Any) -> Any:
    if name == "max_resubmissions":
        return int(value)
    if name in ("show_arguments", "jobs"):
        if str(value).lower() not in ("true", "false", "1", "0"):
            raise ValueError(f"{value!r} is neither true nor false")
        return str(value).lower() in ("true", "1")
    if name in ("condemned_for", "stuck_after", "heartbeat_interval", "timeout", "grace"):
        return float(value)
    return str(value)


_given: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()


def remember(app: Any, given: dict[str, Any]) -> None:
    _given[app] = given


def options_of(app: Any) -> Options:
    """Raises ValueError with a sentence for the user."""
    return Options.read(_given.get(app, {}))
