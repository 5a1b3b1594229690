"""The child process of a probe that is a function.

Command: `python -m controlplane.agent.fitness.probe_child PACKAGE.MODULE:FUNCTION`.

Exit with 0 if the machine is fit. It is not fit if the function (async or not) raises or returns False.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any, cast

from controlplane.agent.processes.callable_child import import_function, run_coroutine


def main() -> int:
    result = cast(Callable[[], Any], import_function(sys.argv[1]))()
    if inspect.iscoroutine(result):
        result = run_coroutine(result)
    if result is False:
        print("it returned False", file=sys.stderr)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
