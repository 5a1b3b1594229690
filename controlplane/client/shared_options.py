"""Options that several commands of the client have."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from controlplane.agent.durations import duration

AddOption = Callable[..., Any]
AddCommand = Callable[..., AddOption]
"""Function that adds a command (its name, function, help and targets) and returns a function that adds its options."""


def whole(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 on")
    return int(text)


def add_note(add: AddOption, required: bool = False) -> None:
    default = {} if required else {"default": ""}
    add("--note", required=required, help="reason, recorded with your name and the time", **default)


def add_namespace(add: AddOption) -> None:
    add("--namespace", metavar="NAME", help="namespace (default: the token's)")


def add_wait(add: AddOption) -> None:
    add("--wait", action="store_true", help="wait for its end; the exit code is 1 unless it is COMPLETED")
    add("--timeout", type=duration, metavar="DURATION", help="time to wait; then the exit code is 5")
