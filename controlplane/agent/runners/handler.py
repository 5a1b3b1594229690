"""A handler: a function that the worker knows by a name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from controlplane.agent.runners.callable import CallableRunner
from controlplane.agent.runners.runner import Action, ActionNotAllowed


class HandlerRunner(CallableRunner):
    """Call functions that this agent knows by a name.

    `functions` are the functions by name. `environments` are additional variables for some of them, by name.
    """

    action_type = "handler"

    def __init__(
        self, functions: Mapping[str, str], environments: Mapping[str, Mapping[str, str]] | None = None
    ) -> None:
        super().__init__()
        self.functions = functions
        self.environments = environments or {}
        self.tags = tuple(f"handler:{name}" for name in functions)

    @property
    def is_pooled(self) -> bool:
        return True

    def refuse(self, action: Action) -> None:
        if (name := str(action.get("name"))) not in self.functions:
            raise ActionNotAllowed(f"this agent has no handler {name}")

    def function(self, action: Action) -> str:
        return self.functions[str(action.get("name"))]

    def named_modules(self, inherited: Mapping[str, str]) -> Iterable[tuple[str, dict[str, str]]]:
        for name, function in self.functions.items():
            yield function.partition(":")[0], self.environment({"name": name}, inherited)

    def environment(self, action: Action, inherited: Mapping[str, str]) -> dict[str, str]:
        return super().environment(action, {**inherited, **self.environments.get(str(action.get("name")), {})})
