"""Tags that a worker must have to run an action."""

from typing import Any

TAGS_OF_RUNNER = {"local": ["script"], "docker": ["script", "docker"], "pod": ["script", "kubernetes"]}
WAITING_TYPES = frozenset({"wait", "approval"})
"""Types of the actions of steps that wait for something outside of the execution. The control plane ends them."""
TYPES_WITHOUT_WORKER = WAITING_TYPES | {"execution"}
"""Types of actions that the control plane starts itself."""
TAGS_OF_TYPE = {"callable": ["python"], "docker": ["docker"], "pod": ["kubernetes"]}
NO_WORKER = ""
"""Tag of what needs no worker. No server can have it, so none of them is claimed."""
TAGS_OF_TYPE |= {type: [NO_WORKER] for type in TYPES_WITHOUT_WORKER}

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
    """Return the tags of the runner of an action. Handlers, Celery tasks and actions without a worker have none."""
    return [] if action["type"] in {"handler", "celery", *TYPES_WITHOUT_WORKER} else tags_of_action(action)


def required_tags(action: dict[str, Any], explicit: list[str]) -> list[str]:
    """Return all tags that a worker must have, sorted and without duplicates.

    The `explicit` tags of an action without a worker do not count.
    """
    if action["type"] in TYPES_WITHOUT_WORKER:
        return tags_of_action(action)
    return sorted({*explicit, *tags_of_action(action)})
