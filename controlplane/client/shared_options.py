"""Options that several commands of the client have."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from controlplane.agent.durations import duration

AddOption = Callable[..., Any]
AddCommand = Callable[..., AddOption]
"""Function that adds a command (its name, function, help and targets) and returns a function that adds its options."""


class CommandParser(argparse.ArgumentParser):
    """Parser of one command. It refuses unknown words with the command's own usage, not with the whole program's."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        given, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return given, unknown


def add_note(add: AddOption, required: bool = False) -> None:
    default = {} if required else {"default": ""}
    add("--note", required=required, help="reason, recorded with your name and the time", **default)


def add_namespace(add: AddOption) -> None:
    add("--namespace", metavar="NAME", help="namespace (default: the token's)")


def add_wait(add: AddOption) -> None:
    add("--wait", action="store_true", help="wait for its end; the exit code is 1 unless it is COMPLETED")
    add("--timeout", type=duration, metavar="DURATION", help="time to wait; then the exit code is 5")
