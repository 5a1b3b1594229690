"""The child process of a callable: `python -m controlplane.agent.callable_child PATH MODULES RESULT [PULSE]`.

PATH is package.module:function. MODULES are globs with commas between them: the function is defined in such a module
(empty: in any). Reads the payload from stdin as JSON, calls the function with it, writes one JSON object to RESULT:
`{"output": …}` or `{"error": {code, message, traceback}}`. RESULT is no standard stream, so prints cannot reach it, and
PULSE is for signs of life (pulse.py).
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import sys
import traceback
from collections.abc import Callable, Coroutine
from fnmatch import fnmatchcase
from typing import Any

from controlplane.agent.limits import SIZE_LIMIT
from controlplane.agent.outcomes import (
    ERROR_LIMIT,
    TOO_DEEP,
    TRACEBACK_LIMIT,
    TooDeep,
    exception_path,
    failure_report,
    parse,
)
from controlplane.agent.pulse import start_pulse


class NotAllowed(Exception):
    """The module that is allowed only imports what is to be called."""


def run_callable(path: str, payload: Any, modules: str = "") -> str:
    """The JSON object to hand back; raises nothing."""
    try:
        result = function_of(path, modules)(payload)
        if inspect.iscoroutine(result):
            result = run_coroutine(result)
    except NotAllowed as error:
        return _encode_problem("NOT_ALLOWED", str(error))
    except BaseException as error:  # a SystemExit of the callable is a failure like any other
        return json.dumps({"error": describe_error(error)})
    return encode_result(result, path)


def encode_result(result: Any, path: str) -> str:
    """The JSON object to hand back for what `path` returned; raises nothing."""
    try:
        text = json.dumps(result, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    except RecursionError:
        return _encode_problem("OUTPUT_TOO_DEEP", TOO_DEEP)
    except BaseException as error:  # whatever its parts may do when they are looked at
        return _encode_problem("RESULT_NOT_JSON", f"the result of {path} is not JSON: {_message(error)}")
    if (size := len(text.encode(errors="surrogatepass"))) > SIZE_LIMIT:
        return _encode_problem("OUTPUT_TOO_LARGE", f"the output has {size} bytes of JSON; the limit is {SIZE_LIMIT}")
    try:
        parse(text)
    except TooDeep:
        return _encode_problem("OUTPUT_TOO_DEEP", TOO_DEEP)
    except ValueError as error:  # a number of more digits than are read
        return _encode_problem("RESULT_NOT_JSON", f"the result of {path} is not JSON: {error}")
    return f'{{"output":{text}}}'


def run_coroutine(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """What an async function returns, in an event loop of its own."""
    import asyncio  # only by those that need it: it takes longer to import than all else here

    return asyncio.run(coroutine)


def function_of(path: str, modules: str = "") -> Callable[[Any], Any]:
    """Raises NotAllowed for what is defined in none of these modules, whatever module imports it."""
    module, _, name = path.partition(":")
    if not module or not name.isidentifier():
        raise ValueError(f"{path!r} is not package.module:function")
    function: Callable[[Any], Any] = getattr(importlib.import_module(module), name)
    home = str(getattr(function, "__module__", None))
    if modules and not any(fnmatchcase(home, glob) for glob in modules.split(",")):
        raise NotAllowed(f"{path} is defined in {home}, which is not among {modules}")
    return function


def _encode_problem(code: str, message: str) -> str:
    return json.dumps({"error": failure_report(code, message)["error"]})


def describe_error(error: BaseException) -> dict[str, str]:
    try:
        lines = "".join(traceback.format_exception(error))
    except Exception:
        lines = ""
    text, path = _message(error), exception_path(error)
    return dict(failure_report(type(error).__name__, text, lines[-TRACEBACK_LIMIT:], path)["error"])


def _message(error: BaseException) -> str:
    try:
        return str(error)[:ERROR_LIMIT]
    except Exception:
        return "(its message could not be read)"


def run_job(path: str, modules: str, descriptor: int, pulse: int | None) -> None:
    """Call the function with the payload on stdin; its result goes to `descriptor`."""
    if pulse is not None:
        start_pulse(pulse)
    os.set_inheritable(descriptor, False)  # what the callable starts must not hold the channel
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # what is printed is seen at once
    payload = json.load(sys.stdin.buffer)
    text = run_callable(path, payload, modules)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogatepass") as channel:
        channel.write(text)


def main() -> None:
    path, modules, result, *pulse = sys.argv[1:]
    run_job(path, modules, int(result), int(pulse[0]) if pulse else None)


if __name__ == "__main__":
    main()
