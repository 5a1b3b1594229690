"""The child process of a probe that is a function: `python -m controlplane.agent.probe_child PACKAGE.MODULE:FUNCTION`.

Ends with 0 when the machine is fit: unless the function, async or not, raises or returns False.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any, cast

from controlplane.agent.callable_child import function_of, run_coroutine


def main() -> int:
    result = cast(Callable[[], Any], function_of(sys.argv[1]))()
    if inspect.iscoroutine(result):
        result = run_coroutine(result)
    if result is False:
        print("it returned False", file=sys.stderr)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
