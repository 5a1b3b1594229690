"""Fields for actions and steps, written as plain lines or as the JSON of the API."""

from typing import Any

import orjson
from django import forms
from django.core.exceptions import ValidationError
from rest_framework.exceptions import ParseError

from controlplane.core.json_bodies import read_foreign_json, write_json

PLAIN = {"type": "script", "runner": "local"}
"""Fields of an action that can be written as a plain command."""


class JSONTextField(forms.CharField):
    """JSON text. The error for invalid JSON names the line."""

    widget = forms.Textarea(attrs={"rows": 5, "spellcheck": "false", "class": "is-code"})

    def clean(self, value: object) -> Any:
        text = super().clean(value)
        return self.read(text.replace("\r\n", "\n")) if text else None

    def read(self, text: str) -> Any:
        try:
            return read_foreign_json(text)
        except orjson.JSONDecodeError as error:
            raise ValidationError(
                f"This is not JSON: line {error.lineno}, column {error.colno}: {error.msg}."
            ) from None
        except ParseError as error:
            raise ValidationError(str(error.detail)) from None


class ActionTextField(JSONTextField):
    """Shell command, or any action as JSON."""

    def read(self, text: str) -> Any:
        return super().read(text) if is_json(text) else {"type": "script", "command": text}


class StepsField(JSONTextField):
    """Named shell commands, one step on each line, or any execution as JSON. The steps run in the order of the lines.

    Lines become a list of steps. The form then names the execution after its trigger.
    """

    def read(self, text: str) -> Any:
        if is_json(text):
            return super().read(text)
        steps: list[dict[str, Any]] = []
        for number, line in enumerate(text.split("\n"), 1):
            if not line.strip():
                continue
            key, colon, command = (part.strip() for part in line.partition(":"))
            if not (key and colon and command):
                raise ValidationError(f"Line {number} is not a step. Write a name and a command, like load: ./load.sh.")
            before = {"depends_on": [steps[-1]["key"]]} if steps else {}
            steps.append({"key": key, "action": {"type": "script", "command": command}, **before})
        return steps


def split_tags(text: str) -> list[str]:
    """Return the tags in a text, in which commas separate them."""
    return [tag.strip() for tag in text.split(",") if tag.strip()]


def is_json(text: str) -> bool:
    return text.lstrip().startswith(("{", "["))


def format_json(value: object) -> str:
    return write_json(value, orjson.OPT_INDENT_2).decode()


def format_action(action: dict[str, Any]) -> str:
    """Return the action as text that ActionTextField reads."""
    command = plain_command(action) if isinstance(action, dict) else None
    return format_json(action) if command is None else command


def format_execution(execution: dict[str, Any], name: str) -> str:
    """Return the execution as text that StepsField reads for a trigger of this name."""
    try:
        lines = plain_steps(execution, name)
    except (LookupError, TypeError, AttributeError):  # another release or a person may have stored other values
        lines = None
    return format_json(execution) if lines is None else "\n".join(lines)


def plain_steps(execution: dict[str, Any], name: str) -> list[str] | None:
    """Return the execution as lines, or None if lines cannot express all of it."""
    lines, before = [], None
    for step in execution["steps"]:
        command = plain_command(step["action"])
        plain = {"key": step["key"], "action": step["action"], **({"depends_on": [before]} if before else {})}
        if command is None or "\n" in command or ":" in step["key"] or step != plain:
            return None
        lines.append(f"{step['key']}: {command}")
        before = step["key"]
    return lines if execution.keys() == {"name", "steps"} and execution["name"] == name else None


def plain_command(action: dict[str, Any]) -> str | None:
    """Return the command if the action consists of nothing else, otherwise None."""
    command = action.get("command")
    is_plain = {**PLAIN, **action, "command": ""} == {**PLAIN, "command": ""}
    return command if is_plain and isinstance(command, str) and command.strip() and not is_json(command) else None
