"""Fields for what is to run: as most of it is, in plain lines; else as JSON, as the API takes it."""

from typing import Any

import orjson
from django import forms
from django.core.exceptions import ValidationError
from rest_framework.exceptions import ParseError

from controlplane.core.json_bodies import refuse_unstorable

PLAIN = {"type": "script", "runner": "local"}
"""What a command on a line is, besides its text."""


class JSONTextField(forms.CharField):
    """JSON as a text; where it is none, its error says the line."""

    widget = forms.Textarea(attrs={"rows": 5, "spellcheck": "false", "class": "is-code"})

    def clean(self, value: object) -> Any:
        text = super().clean(value)
        return self.read(text.replace("\r\n", "\n")) if text else None

    def read(self, text: str) -> Any:
        try:
            data = orjson.loads(text)
            refuse_unstorable(data)
        except orjson.JSONDecodeError as error:
            raise ValidationError(
                f"This is not JSON: line {error.lineno}, column {error.colno}: {error.msg}."
            ) from None
        except ParseError as error:
            raise ValidationError(str(error.detail)) from None
        return data


class ActionField(JSONTextField):
    """A shell command, or any action as JSON."""

    def read(self, text: str) -> Any:
        return super().read(text) if is_json(text) else {"type": "script", "command": text}


class StepsField(JSONTextField):
    """Shell commands with names, a step on each line and one after the other, or any execution as JSON. The former are
    a list of steps, for an execution that is called as what starts it."""

    def read(self, text: str) -> Any:
        if is_json(text):
            return super().read(text)
        steps: list[dict[str, Any]] = []
        for number, line in enumerate(text.split("\n"), 1):
            if not line.strip():
                continue
            key, colon, command = (part.strip() for part in line.partition(":"))
            if not (key and colon and command):
                raise ValidationError(f"Line {number} is no step: write its name and a command, like load: ./load.sh.")
            before = {"depends_on": [steps[-1]["key"]]} if steps else {}
            steps.append({"key": key, "action": {"type": "script", "command": command}, **before})
        return steps


def is_json(text: str) -> bool:
    return text.lstrip().startswith(("{", "["))


def format_json(value: object) -> str:
    return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()


def format_action(action: dict[str, Any]) -> str:
    """As ActionField reads it."""
    return format_json(action) if (command := plain_command(action)) is None else command


def format_execution(execution: dict[str, Any], name: str) -> str:
    """As StepsField reads it of a trigger of this name."""
    lines, before = [], None
    for step in execution["steps"]:
        command = plain_command(step["action"])
        plain = {"key": step["key"], "action": step["action"], **({"depends_on": [before]} if before else {})}
        if command is None or "\n" in command or ":" in step["key"] or step != plain:
            break
        lines.append(f"{step['key']}: {command}")
        before = step["key"]
    else:
        if execution.keys() == {"name", "steps"} and execution["name"] == name:
            return "\n".join(lines)
    return format_json(execution)


def plain_command(action: dict[str, Any]) -> str | None:
    """The command that an action is, and nothing else."""
    command = action.get("command")
    is_plain = {**PLAIN, **action, "command": ""} == {**PLAIN, "command": ""}
    return command if is_plain and isinstance(command, str) and command.strip() and not is_json(command) else None
