"""Limits of a command and its variables. Linux starts no program beyond them, so such a job could never run."""

from collections.abc import Mapping
from typing import Any

from rest_framework import serializers

from controlplane.agent.limits import ARGUMENT_LIMIT, ARGUMENT_OVERHEAD, ARGUMENTS_LIMIT, VARIABLE_MARGIN


def refuse_unstartable(action: Mapping[str, Any]) -> None:
    """Raise ValidationError for a command or variables that are too large to start a program with."""
    command, env = action.get("command", ""), action.get("env", {})
    parts = [command] if isinstance(command, str) else command
    if (longest := max(map(size_of_text, parts))) > ARGUMENT_LIMIT:
        what = "The command" if isinstance(command, str) else "A part of the command"
        raise serializers.ValidationError(
            {
                "command": [
                    f"{what} has {longest} bytes, but Linux allows at most {ARGUMENT_LIMIT}. "
                    "Put it into a file on the worker, into an image, or into the payload."
                ]
            }
        )
    total = sum(map(size_of_text, parts)) + len(parts) * ARGUMENT_OVERHEAD
    for name, value in env.items():
        if not name or "=" in name:
            raise serializers.ValidationError(
                {"env": {name: ["The name of a variable must not be empty or contain =."]}}
            )
        size = size_of_text(name) + (size_of_text(value) if isinstance(value, str) else 0)
        if size > ARGUMENT_LIMIT - VARIABLE_MARGIN:
            why = f"With its name it has {size} bytes, but may have at most {ARGUMENT_LIMIT - VARIABLE_MARGIN}."
            raise serializers.ValidationError({"env": {name: [why]}})
        total += size + ARGUMENT_OVERHEAD
    if total > ARGUMENTS_LIMIT:
        raise serializers.ValidationError(
            {"command": [f"With its variables it has {total} bytes, but Linux allows at most {ARGUMENTS_LIMIT}."]}
        )


def size_of_text(text: str) -> int:
    """Return the bytes of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode())
