"""Which tags a worker must have to run an action."""

from typing import Any

BY_RUNNER = {"local": ["script"], "docker": ["script", "docker"], "pod": ["script", "kubernetes"]}


def of_action(action: dict[str, Any]) -> list[str]:
    """The tags that an action's type and runner ask for."""
    match action["type"]:
        case "script":
            return BY_RUNNER[action.get("runner", "local")]
        case "callable":
            return ["python"]
        case "handler":
            return [f"handler:{action['name']}"]
        case other:
            raise ValueError(f"no worker runs actions of type {other}")


def required(action: dict[str, Any], explicit: list[str]) -> list[str]:
    """Every tag that a worker must have, sorted, each once."""
    return sorted({*explicit, *of_action(action)})
