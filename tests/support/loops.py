"""Steps that run for each item of a list, as tests submit them."""

from typing import Any

from tests.support.executions import Run, step

FILES = "$.steps.list.output"


def loop(key: str = "each", *needs: str, for_each: str = FILES, **fields: Any) -> dict[str, Any]:
    """Return a loop. Without `needs` it depends on the step `list`, whose output is its list."""
    return step(key, *(needs or ["list"]), for_each=for_each, **fields)


def child_of(run: Run, key: str = "each") -> Run:
    """Return the execution of the items of a loop."""
    return Run(run.client, run.step(key)["child"])
