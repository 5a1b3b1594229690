"""Steps that wait, as tests submit them."""

from typing import Any


def wait(key: str, *needs: str, **action: Any) -> dict[str, Any]:
    """Return a step that waits. Fields of the step go to the step, the others to its action."""
    fields = {name: action.pop(name) for name in OF_STEPS if name in action}
    return {"key": key, "depends_on": list(needs), "action": {"type": "wait", **action}, **fields}


NO_WAIT = dict.fromkeys(("what", "until", "signal", "message", "choices", "fields", "group"))
"""Fields of `waiting_for`."""
OF_STEPS = ("when", "payload", "max_retries", "run_if_skipped", "continue_on_failure")


def approval(key: str, *needs: str, message: Any = "Deploy 4.2?", **action: Any) -> dict[str, Any]:
    """Return a step that asks people, like `wait`."""
    step = wait(key, *needs, **action)
    return {**step, "action": {**step["action"], "type": "approval", "message": message}}
