"""Which tags a worker must have to run an action."""

from typing import Any

TAGS_OF_RUNNER = {"local": ["script"], "docker": ["script", "docker"], "pod": ["script", "kubernetes"]}
TAGS_OF_TYPE = {"callable": ["python"], "docker": ["docker"], "pod": ["kubernetes"], "execution": [""]}
"""No server can have the empty tag: an execution is started by the control plane itself, never claimed."""


GPU = "runtime:gpu"
"""What an agent has that finds GPUs on its machine, where its containers run; a pod's are those of the cluster."""


def tags_of_action(action: dict[str, Any]) -> list[str]:
    """The tags that an action's type, runner and resources ask for."""
    tags = tags_of_type(action)
    return [*tags, GPU] if "docker" in tags and (action.get("resources") or {}).get("gpus") else tags


def tags_of_type(action: dict[str, Any]) -> list[str]:
    """The tags that an action's type and runner ask for."""
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
    """Those that say what runs an action, a script or a container; none of a handler or a task, which has only a name,
    nor of an execution."""
    return [] if action["type"] in {"handler", "celery", "execution"} else tags_of_action(action)


def required_tags(action: dict[str, Any], explicit: list[str]) -> list[str]:
    """Every tag that a worker must have, sorted, each once. What is an execution no worker has, whatever its tags."""
    if action["type"] == "execution":
        return tags_of_action(action)
    return sorted({*explicit, *tags_of_action(action)})
