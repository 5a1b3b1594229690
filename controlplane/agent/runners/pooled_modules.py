"""The modules that pool processes will need, as far as the operator named them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from controlplane.agent.runners.runner import OF_SOME_ATTEMPTS, Runner


def list_pooled_modules(
    runners: Iterable[Runner], isolation: str | None, inherited: Mapping[str, str]
) -> dict[frozenset[tuple[str, str]], list[str]]:
    """Return the modules whose functions run in pool processes, by the environment of their calls.

    `isolation` is the option of the agent. `inherited` is the base of the environment.
    """
    modules: dict[frozenset[tuple[str, str]], dict[str, None]] = {}
    for runner in runners:
        if runner.is_pooled if isolation is None else isolation == "pool":
            for module, environment in runner.named_modules(inherited):
                key = frozenset((name, value) for name, value in environment.items() if name not in OF_SOME_ATTEMPTS)
                modules.setdefault(key, {})[module] = None
    return {environment: list(names) for environment, names in modules.items()}
