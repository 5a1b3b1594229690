"""What this agent was started to run, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

KINDS = ("script", "callable")


class NotAllowed(Exception):
    """This agent does not run such an action."""


@dataclass(frozen=True)
class Allowances:
    """The action types that run here; `callables` are globs on the module path, empty: any module."""

    kinds: frozenset[str]
    callables: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Allowances:
        """From `script,callable:myapp.*`; raises ValueError with a sentence for the user."""
        kinds: set[str] = set()
        globs: list[str] = []
        bare = False
        for item in filter(None, (part.strip() for part in text.split(","))):
            kind, _, glob = item.partition(":")
            if kind == "handler":
                raise ValueError("this agent has no handlers: --allow handler needs an agent that registers some")
            if kind not in KINDS:
                raise ValueError(f"--allow {item}: it is one of {', '.join(KINDS)}")
            if glob and kind != "callable":
                raise ValueError(f"--allow {item}: only callable takes a pattern")
            kinds.add(kind)
            bare = bare or (kind == "callable" and not glob)
            globs += [glob] if glob else []
        if not kinds:
            raise ValueError("--allow names nothing, so there would be nothing to run")
        return cls(frozenset(kinds), () if bare else tuple(globs))

    def check(self, action: dict[str, Any]) -> None:
        """Raises NotAllowed, with the reason, for an action that may not run here."""
        kind = action.get("type")
        if kind not in self.kinds:
            raise NotAllowed(f"actions of type {kind} are not allowed here")
        if kind == "script" and (runner := action.get("runner") or "local") != "local":
            raise NotAllowed(f"this agent has no {runner} runner")
        if kind == "callable" and self.callables:
            module = str(action.get("path") or "").partition(":")[0]
            if not any(fnmatchcase(module, glob) for glob in self.callables):
                raise NotAllowed(f"module {module} is not among {', '.join(self.callables)}")
