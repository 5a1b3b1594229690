"""The child process of a callable: `python -m controlplane.agent.processes.callable_child PATH MODULES RESULT [PULSE]`.

PATH is package.module:function. MODULES are globs, separated by commas: the function must be defined in a module that
matches one of them (empty: any module). The process reads the payload from stdin as JSON, calls the function with it,
and writes one JSON object to RESULT: `{"output": …}` or `{"error": {code, message, traceback}}`. RESULT is a separate
file descriptor, so printed text cannot get into it. PULSE is the file descriptor for signs of life (pulse.py).
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

from controlplane.agent.from_code.outcomes import (
    ERROR_LIMIT,
    MACHINE_MARK,
    TOO_DEEP,
    TRACEBACK_LIMIT,
    TooDeep,
    exception_path,
    failure_report,
    parse,
)
from controlplane.agent.from_code.pulse import start_pulse
from controlplane.agent.from_code.stack_file import open_stack_file
from controlplane.agent.limits import SIZE_LIMIT
from controlplane.agent.processes.machine_errors import is_of_machine

SUCCESS = '{"output":'
"""Start of the JSON object with the result of a function."""


class NotAllowed(Exception):
    """The function is not defined in an allowed module. An allowed module may only import it."""


def run_callable(path: str, payload: Any, modules: str = "") -> str:
    """Call the function and return the JSON object with its result or error. Raise nothing."""
    function = find_function(path, modules)
    if isinstance(function, str):
        return function
    try:
        result = function(payload)
        if inspect.iscoroutine(result):
            result = run_coroutine(result)
    except BaseException as error:  # a SystemExit is a failure too
        return json.dumps({"error": describe_error(error)})
    return encode_result(result, path)


def find_function(path: str, modules: str) -> Callable[[Any], Any] | str:
    """Return the function, or the text to answer if it may not be called or cannot be imported. Raise nothing."""
    try:
        return import_function(path, modules)
    except NotAllowed as error:
        return _encode_problem("NOT_ALLOWED", str(error))
    except BaseException as error:
        if is_of_machine(error):  # the function was not called, so the job can run elsewhere
            return f"{MACHINE_MARK.decode()}{path} cannot be imported: {error!r}"
        return json.dumps({"error": describe_error(error)})


def encode_result(result: Any, path: str) -> str:
    """Return the JSON object with the result of `path`. Raise nothing."""
    try:
        text = json.dumps(result, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    except RecursionError:
        return _encode_problem("OUTPUT_TOO_DEEP", TOO_DEEP)
    except BaseException as error:  # the code of its parts runs here and may raise anything
        return _encode_problem("RESULT_NOT_JSON", f"the result of {path} is not JSON: {_message(error)}")
    if (size := len(text.encode(errors="surrogatepass"))) > SIZE_LIMIT:
        return _encode_problem("OUTPUT_TOO_LARGE", f"the output has {size} bytes of JSON; the limit is {SIZE_LIMIT}")
    try:
        parse(text)
    except TooDeep:
        return _encode_problem("OUTPUT_TOO_DEEP", TOO_DEEP)
    except ValueError as error:  # a number with more digits than Python reads
        return _encode_problem("RESULT_NOT_JSON", f"the result of {path} is not JSON: {error}")
    return f"{SUCCESS}{text}}}"


def run_coroutine(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine in a new event loop and return its result."""
    import asyncio  # imported only if needed: this import takes longer than all others here

    return asyncio.run(coroutine)


def import_function(path: str, modules: str = "") -> Callable[[Any], Any]:
    """Return the function `package.module:function`.

    Raise NotAllowed if it is defined in a module that matches none of `modules`, even if an allowed module imports it.
    """
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
    open_stack_file()
    os.set_inheritable(descriptor, False)  # processes that the callable starts must not hold it open
    sys.__stdout__.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # so that printed lines are reported at once
    payload = json.load(sys.stdin.buffer)
    text = run_callable(path, payload, modules)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogatepass") as channel:
        channel.write(text)


def main() -> None:
    path, modules, result, *pulse = sys.argv[1:]
    run_job(path, modules, int(result), int(pulse[0]) if pulse else None)


if __name__ == "__main__":
    main()
