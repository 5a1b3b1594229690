"""Typed settings: a dataclass has the defaults; a Django setting and environment variables override them."""

import dataclasses
import difflib
import math
import os
import re
import typing
from enum import StrEnum
from types import UnionType
from typing import Annotated, Any, Generic, TypeVar

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed

from controlplane.agent.fitness.memory import parse_size
from controlplane.core.durations import parse_duration

Seconds = Annotated[float, "seconds"]
Bytes = Annotated[int, "bytes"]

T = TypeVar("T")

CHECKS = "controlplane"
"""Tag of the system checks of our settings. Other checks import all views."""
OF_KUBERNETES = re.compile(r"(\w+_)?(SERVICE_(HOST|PORT)|PORT)(_\w+)?")
"""Environment variables that Kubernetes sets in every pod for its services. Their names may look like our settings."""


class Conf(Generic[T]):
    """Settings of one app. They are read on first use, and again when a test changes them.

    `NAME = {"KEY": value}` in Django settings overrides the default of field `key`. The environment variable `NAME_KEY`
    overrides both.
    """

    def __init__(self, schema: type[T], name: str) -> None:
        self.schema = schema
        self.name = name
        self._cached: tuple[T, list[str]] | None = None
        setting_changed.connect(self._forget_settings, weak=False)

    def __call__(self) -> T:
        """Return the settings. Raise ImproperlyConfigured, with a list of all invalid values, if there are any."""
        values, problems = self.read_settings()
        if problems:
            raise ImproperlyConfigured(" ".join(problems))
        return values

    def read_settings(self) -> tuple[T, list[str]]:
        """Return the valid settings, and one sentence for each invalid or unknown key."""
        if self._cached is None:
            self._cached = self._parse_settings()
        return self._cached

    def list_overridden(self) -> list[str]:
        """Return one sentence for each key in the Django settings that an environment variable overrides."""
        given: dict[str, Any] = dict(getattr(settings, self.name, {}))
        sentences = []
        for field, kind in typing.get_type_hints(self.schema, include_extras=True).items():
            key, variable = field.upper(), f"{self.name}_{field.upper()}"
            if key not in given or variable not in os.environ:
                continue
            try:
                is_same = parse_value(given[key], kind) == parse_value(os.environ[variable], kind)
            except ValueError:
                continue  # reported elsewhere
            if not is_same:
                sentences.append(describe_override(f'{self.name}["{key}"]', given[key], variable))
        return sentences

    def _forget_settings(self, *, setting: str, **_: object) -> None:
        if setting == self.name:
            self._cached = None

    def _parse_settings(self) -> tuple[T, list[str]]:
        given: dict[str, Any] = dict(getattr(settings, self.name, {}))
        known = typing.get_type_hints(self.schema, include_extras=True)
        keys = [field.upper() for field in known]
        unknown = {f'{self.name}["{key}"]': key for key in given if key not in keys}
        in_environment = {name: name.removeprefix(f"{self.name}_") for name in os.environ}
        unknown |= {
            name: key
            for name, key in in_environment.items()
            if name != key and key not in keys and not OF_KUBERNETES.fullmatch(key)
        }
        problems = [
            f"{name} is not a setting; {suggest_key(str(key), keys) or 'known are ' + ', '.join(keys)}."
            for name, key in unknown.items()
        ]
        values = {}
        for field, kind in known.items():
            key = field.upper()
            source = f"{self.name}_{key}" if f"{self.name}_{key}" in os.environ else f'{self.name}["{key}"]'
            raw = os.environ.get(f"{self.name}_{key}", given.get(key, dataclasses.MISSING))
            if raw is dataclasses.MISSING:
                continue
            try:
                values[field] = parse_value(raw, kind)
            except ValueError as error:
                problems.append(f"{source}: {error}.")
        return self.schema(**values), problems


SECRET_WORDS = ("KEY", "SECRET", "URL")
"""A setting whose name contains one of these words is secret: its value is not shown."""


def describe_override(setting: str, value: object, variable: str) -> str:
    """Return a sentence that names a setting, its environment variable, and both values if they are not secret."""
    if any(word in variable for word in SECRET_WORDS):
        return f"{setting} is not used: the environment variable {variable} has another value and wins."
    return f"{setting} is {value!r} and is not used: the environment variable {variable}={os.environ[variable]} wins."


def suggest_key(key: str, keys: list[str]) -> str:
    """Return a hint with the key that was probably meant, or an empty text."""
    matches = difflib.get_close_matches(key.upper(), keys, 1)
    return f"{matches[0]} is probably meant" if matches else ""


def parse_value(raw: object, kind: Any) -> Any:
    """Return one value converted to the type of its field. Raise ValueError with a message that names valid values."""
    options = typing.get_args(kind) if typing.get_origin(kind) in (typing.Union, UnionType) else (kind,)
    if Seconds in options:
        value = parse_duration(raw)
        if value is None and type(None) not in options:
            raise ValueError("a duration is required here, not none")
        return value
    if type(None) in options and (raw is None or str(raw).strip().lower() == "none"):
        return None
    if Bytes in options:
        return parse_size(str(raw))
    if bool in options:
        words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
        if str(raw).lower() not in words:
            raise ValueError(f"{raw!r} is neither true nor false")
        return words[str(raw).lower()]
    wanted = next(option for option in options if option is not type(None))
    if issubclass(wanted, StrEnum):
        if raw not in list(wanted):
            raise ValueError(f"{raw!r} is not one of {', '.join(wanted)}")
        return wanted(raw)
    if wanted is str:
        return " ".join(map(str, raw)) if isinstance(raw, list | tuple) else str(raw)
    try:
        value = wanted(raw)
        if isinstance(raw, bool) or not math.isfinite(value) or (isinstance(raw, float) and value != raw):
            raise ValueError
    except (TypeError, ValueError):
        kind_of_number = "a whole number" if wanted is int else "a number"
        raise ValueError(f"{raw!r} is not {kind_of_number}") from None
    return value
