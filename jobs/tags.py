"""Tags that a worker must have to run an action."""

from typing import Any

TAGS_OF_RUNNER = {"local": ["script"], "docker": ["script", "docker"], "pod": ["script", "kubernetes"]}
TAGS_OF_TYPE = {"callable": ["python"], "docker": ["docker"], "pod": ["kubernetes"], "execution": [""]}
"""The empty tag of executions, which no server can have. The control plane starts them itself, so none is claimed."""


GPU = "runtime:gpu"
"""Tag of an agent that found GPUs on its machine. Only containers need it; the GPUs of a pod are in its cluster."""


def tags_of_action(action: dict[str, Any]) -> list[str]:
    """Return the tags that an action needs because of its type, runner and resources."""
    tags = tags_of_type(action)
    return [*tags, GPU] if "docker" in tags and (action.get("resources") or {}).get("gpus") else tags


def tags_of_type(action: dict[str, Any]) -> list[str]:
    """Return the tags that an action needs because of its type and runner."""
    match action["type"]:
        case "script":
            return TAGS_OF_RUNNER[action["runner"]]
        case "handler":
            return [f"handler:{action['name']}"]
        case "celery":
            return ["celery", f"queue:{action['queue']}"]
        case other:
            return TAGS_OF_TYPE[other]


def tags_of_runner(action: dict[str, Any]) -> list[str]:
    """Return the tags of the runner of an action. Handlers, Celery tasks and executions have none."""
    return [] if action["type"] in {"handler", "celery", "execution"} else tags_of_action(action)


def required_tags(action: dict[str, Any], explicit: list[str]) -> list[str]:
    """Return all tags that a worker must have, sorted and without duplicates.

    The `explicit` tags of an execution do not count, because no worker runs it.
    """
    if action["type"] == "execution":
        return tags_of_action(action)
    return sorted({*explicit, *tags_of_action(action)})
