"""Options of the protection, from the arguments of `protect(…)` or the environment."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from typing import Any
from weakref import WeakKeyDictionary

from controlplane.agent.api.client import check_address

OFF = "off"
PREFIX = "CONTROLPLANE_CELERY_"  # of the variables of all options but the address, the token and the folder
INSTANCE_VARIABLE = "CONTROLPLANE_CELERY_INSTANCE"  # variable in the environment of all processes that a worker starts
RECORDINGS = ("servers", "notable", "everything")
WHEN_STUCK = ("flag", "cordon")


class Unset(int):
    """Default of `task_acks_late`.

    It is false, but its type distinguishes it from a False that the application sets.
    """


UNSET = Unset(0)


@dataclass(frozen=True)
class CeleryOptions:
    """Options of `protect`. Numbers are seconds, except `max_resubmissions`. None means the control plane's setting."""

    url: str = ""
    token: str = ""
    cluster: str = "default"
    name: str | None = None  # name of the server; default: the worker's node name
    record: str = "notable"  # "servers" reports no task; "notable" reports long, failed, retried and lost tasks
    show_arguments: bool = False
    jobs: bool = True  # take jobs of the type "celery"
    max_resubmissions: int = 3  # losses that a task may have while its code ran; the next loss quarantines it
    condemned_for: float = 2.0  # time between the mark of a lost worker and the return of its messages
    # Time without a received message after which a worker is stuck, if messages wait and it has room.
    stuck_after: float = 60.0
    when_stuck: str = "flag"
    heartbeat_interval: float | None = None
    timeout: float | None = None
    grace: float | None = None  # the longest warm shutdown
    # Report proved deaths of earlier workers, and let later workers prove the death of this one.
    fast_recovery: bool = True
    state_dir: str | None = None  # folder for that, shared by successive workers of a machine or container

    @classmethod
    def chosen(cls, **arguments: Any) -> dict[str, Any]:
        """Return the arguments that are not None. Raise TypeError for an unknown argument."""
        known = {field.name for field in fields(cls)}
        if unknown := set(arguments) - known:
            raise TypeError(f"protect() takes no {', '.join(sorted(unknown))}; it takes {', '.join(sorted(known))}")
        return {name: value for name, value in arguments.items() if value is not None}

    @classmethod
    def read(cls, given: dict[str, Any], environment: dict[str, str] | os._Environ[str] = os.environ) -> CeleryOptions:
        """Return the options from `given`, then from the environment. Raise ValueError with a message for the user."""
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
        options = options._checked()
        if not options.is_off:
            _check_names(environment)
        return options

    @property
    def is_off(self) -> bool:
        return self.url.lower() == OFF

    def server_config(self) -> dict[str, Any]:
        """Return the settings that the registration asks for.

        The strategy is IMMEDIATELY, because a lost worker's messages are redelivered and it must not resume its tasks.
        """
        asked = {
            "heartbeat_interval_seconds": self.heartbeat_interval,
            "timeout_seconds": self.timeout,
            "termination_grace_period_seconds": self.grace,
        }
        chosen = {key: value for key, value in asked.items() if value is not None}
        return {"worker_task_restart_strategy": "IMMEDIATELY", **chosen}

    def _checked(self) -> CeleryOptions:
        if self.is_off:
            return self
        missing = [name for name in ("url", "token") if not getattr(self, name)]
        if missing:
            names = " and ".join(variable_of(name) for name in missing)
            raise ValueError(f"protect() needs {names}. CONTROLPLANE_URL={OFF} starts this worker without protection.")
        check_address(self.url)
        for name, choices in (("record", RECORDINGS), ("when_stuck", WHEN_STUCK)):
            if getattr(self, name) not in choices:
                raise ValueError(
                    f"{name} ({variable_of(name)}) is {getattr(self, name)!r} but must be one of {choices}"
                )
        if self.max_resubmissions < 0:
            raise ValueError(f"max_resubmissions is {self.max_resubmissions} but must be at least 0")
        if self.condemned_for < 1:
            raise ValueError(f"condemned_for is {self.condemned_for:g} s but must be at least 1 s")
        if self.stuck_after <= 0:
            raise ValueError(f"stuck_after is {self.stuck_after:g} s but must be more than 0 s")
        return self


def variable_of(name: str) -> str:
    """Return the environment variable of an option."""
    return f"CONTROLPLANE_{name.upper()}" if name in ("url", "token", "state_dir") else f"{PREFIX}{name.upper()}"


def _check_names(environment: Iterable[str]) -> None:
    """Raise ValueError for a misspelt option, because it would have no effect.

    Others may be variables of Kubernetes for a service with such a name, or options of another version.
    """
    known = {field.name.upper(): variable_of(field.name) for field in fields(CeleryOptions)}
    for name in environment:
        if not name.startswith(PREFIX) or name in (INSTANCE_VARIABLE, *known.values()):
            continue
        if meant := get_close_matches(name.removeprefix(PREFIX), known, n=1, cutoff=0.8):
            raise ValueError(f"{name} is not an option. Did you mean {known[meant[0]]}?")


def _parsed(name: str, value: Any) -> Any:
    if name == "max_resubmissions":
        return _number(int, value, "a whole number")
    if name in ("show_arguments", "jobs", "fast_recovery"):
        if str(value).lower() not in ("true", "false", "1", "0"):
            raise ValueError(f"{value!r} is neither true nor false")
        return str(value).lower() in ("true", "1")
    if name in ("condemned_for", "stuck_after", "heartbeat_interval", "timeout", "grace"):
        return _number(float, value, "a number of seconds")
    return str(value)


def _number(kind: type[int] | type[float], value: Any, wanted: str) -> Any:
    try:
        return kind(value)
    except (TypeError, ValueError):
        raise ValueError(f"{value!r} is not {wanted}") from None


_given: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()


def remember(app: Any, given: dict[str, Any]) -> None:
    _given[app] = given


def options_of(app: Any) -> CeleryOptions:
    """Return the options of an application. Raise ValueError with a message for the user."""
    return CeleryOptions.read(_given.get(app, {}))
