"""The result of a job's code, within limits. Nothing here trusts the code, because it may write anything."""

from __future__ import annotations

import json
from typing import Any

from controlplane.agent.from_code.logs import decode_text
from controlplane.agent.limits import BODY_DEPTH_LIMIT, MESSAGE_LIMIT, RESULT_KEPT, SIZE_LIMIT

DEPTH_LIMIT = BODY_DEPTH_LIMIT - 10  # levels of an output: the report adds some around it
MACHINE_MARK = b"machine: "  # start of a result if the machine kept the function from being called; not JSON
CODE_LIMIT, ERROR_LIMIT, TRACEBACK_LIMIT = 200, 10_000, 4096  # characters


class TooDeep(ValueError):
    """JSON with more levels than every reader supports."""


def parse(data: str | bytes, depth: int = DEPTH_LIMIT) -> Any:
    """Return parsed JSON of at most `depth` levels. Raise TooDeep, or another ValueError."""
    try:
        value = json.loads(data, parse_constant=_refuse)
    except RecursionError:
        raise TooDeep from None
    level = [value]
    for _ in range(depth + 1):
        level = [item for one in level if isinstance(one, list | dict) for item in _items(one)]
        if not level:
            return value
    raise TooDeep


def machine_problem_of(result: bytes) -> str:
    """Return why the machine kept a function from being called, or an empty text."""
    if not result.startswith(MACHINE_MARK):
        return ""
    return decode_text(result.removeprefix(MACHINE_MARK))[:MESSAGE_LIMIT]


def report_of(result: bytes) -> dict[str, Any] | None:
    """Return the report for the result of a callable's child process. Return None for an empty result."""
    if not result:
        return None
    if len(result) > RESULT_KEPT:
        return failure_report("OUTPUT_TOO_LARGE", f"the output is larger than {SIZE_LIMIT} bytes of JSON")
    try:
        answer = parse(result, DEPTH_LIMIT + 1)
    except TooDeep:
        return failure_report("OUTPUT_TOO_DEEP", TOO_DEEP)
    except ValueError:
        return None  # incomplete: the process died while writing
    if isinstance(answer, dict) and isinstance(error := answer.get("error"), dict):
        code, message, traceback = (str(error.get(name) or "") for name in ("code", "message", "traceback"))
        limited = failure_report(
            code[:CODE_LIMIT] or "ERROR",
            message[:ERROR_LIMIT],
            traceback[max(0, len(traceback) - TRACEBACK_LIMIT) :],
            str(error.get("exception") or "")[:CODE_LIMIT],
        )
        return dict(clean(limited))
    if isinstance(answer, dict) and set(answer) == {"output"}:
        return {"event": "COMPLETED", "output": clean(answer["output"])}
    return failure_report("NO_RESULT", "the process returned something that is not a result")


TOO_DEEP = f"the output is nested more than {DEPTH_LIMIT} levels deep"


def failure_report(code: str, message: str, traceback: str = "", exception: str = "") -> dict[str, Any]:
    """Return a FAILED report. `exception` is the class of a Python exception, as `package.module.Class`."""
    of_python = {"exception": exception} if exception else {}
    return {"event": "FAILED", "error": {"code": code, "message": message, "traceback": traceback, **of_python}}


def exception_path(error: BaseException) -> str:
    return f"{type(error).__module__}.{type(error).__qualname__}"


def clean(value: Any) -> Any:
    """Return `value` with NUL and lone surrogates replaced in all texts, because the control plane refuses both."""
    if isinstance(value, str):
        return (
            decode_text(value.encode("utf-8", errors="replace"))
            if not value.isascii()
            else value.replace("\0", "\ufffd")
        )
    if isinstance(value, list):
        return [clean(item) for item in value]
    if isinstance(value, dict):
        return {clean(name): clean(item) for name, item in value.items()}
    return value


def _items(value: Any) -> Any:
    return value.values() if isinstance(value, dict) else value


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
