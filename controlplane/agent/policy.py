"""What this agent was started to run, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

ACTION_TYPES = ("script", "callable", "handler")
HANDLER_PATTERN = re.compile(r"([^=\s]+)=([^\W\d]\w*(?:\.[^\W\d]\w*)*:[^\W\d]\w*)")


class ActionNotAllowed(Exception):
    """This agent does not run such an action."""


@dataclass(frozen=True)
class ActionPolicy:
    """The action types that run here; `callables` are globs on the module that defines a
    function, empty: any module.

    `handlers`: by name, the function that is called.
    """

    action_types: frozenset[str]
    callables: tuple[str, ...] = ()
    handlers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse_options(cls, text: str | None, handlers: Iterable[str] = ()) -> ActionPolicy:
        """From `script,callable:myapp.*,handler` (None: the default) and handlers as `NAME=package.module:function`.

        Raises ValueError with a sentence for the user.
        """
        named = _parse_handlers(handlers)
        if text is None:
            text = "script,callable,handler" if named else "script,callable"
        action_types: set[str] = set()
        globs: list[str] = []
        allows_any_module = False
        for item in filter(None, (part.strip() for part in text.split(","))):
            kind, _, glob = item.partition(":")
            if kind not in ACTION_TYPES:
                raise ValueError(f"--allow {item}: it is one of {', '.join(ACTION_TYPES)}")
            if glob and kind != "callable":
                raise ValueError(f"--allow {item}: only callable takes a pattern")
            action_types.add(kind)
            allows_any_module = allows_any_module or (kind == "callable" and not glob)
            globs += [glob] if glob else []
        if not action_types:
            raise ValueError("--allow names nothing, so there would be nothing to run")
        if ("handler" in action_types) != bool(named):
            raise ValueError("--allow handler and --handler NAME=package.module:function need each other")
        return cls(frozenset(action_types), () if allows_any_module else tuple(globs), named)

    def resolve_action(self, action: dict[str, Any]) -> dict[str, Any]:
        """The action to run: a handler's is the call that it stands for. Raises NotAllowed with the reason.

        In `modules` of a call are the globs of those in which its function is to be defined: what is allowed imports
        what is not.
        """
        kind = action.get("type")
        if kind not in self.action_types:
            raise ActionNotAllowed(f"actions of type {kind} are not allowed here")
        if kind == "script" and (runner := action.get("runner") or "local") != "local":
            raise ActionNotAllowed(f"this agent has no {runner} runner")
        if kind == "callable" and self.callables:
            module = str(action.get("path") or "").partition(":")[0]
            if not any(fnmatchcase(module, glob) for glob in self.callables):
                raise ActionNotAllowed(f"module {module} is not among {', '.join(self.callables)}")
            return {**action, "modules": list(self.callables)}
        if kind != "handler":
            return action
        name = str(action.get("name"))
        if name not in self.handlers:
            raise ActionNotAllowed(f"this agent has no handler {name}")
        return {"type": "callable", "path": self.handlers[name]}


def _parse_handlers(definitions: Iterable[str]) -> dict[str, str]:
    named: dict[str, str] = {}
    for text in definitions:
        match = HANDLER_PATTERN.fullmatch(text)
        if not match:
            raise ValueError(f"--handler {text}: write NAME=package.module:function")
        if match[1] in named:
            raise ValueError(f"--handler {text}: {match[1]} is {named[match[1]]} already")
        named[match[1]] = match[2]
    return named
