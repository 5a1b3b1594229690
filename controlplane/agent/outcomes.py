"""What the code of a job hands back, within limits. Nothing here trusts it: it may write whatever it likes."""

from __future__ import annotations

import json
from typing import Any

from controlplane.agent.limits import BODY_DEPTH_LIMIT, RESULT_KEPT, SIZE_LIMIT
from controlplane.agent.logs import decode_text

DEPTH_LIMIT = BODY_DEPTH_LIMIT - 10  # levels of an output: the report is around it
CODE_LIMIT, ERROR_LIMIT, TRACEBACK_LIMIT = 200, 10_000, 4096  # characters


class TooDeep(ValueError):
    """JSON that is nested more deeply than it could be read again everywhere."""


def parse(data: str | bytes, depth: int = DEPTH_LIMIT) -> Any:
    """JSON of at most so many levels. Raises TooDeep, or another ValueError."""
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


def report_of(result: bytes) -> dict[str, Any] | None:
    """The report of what the child of a callable handed back; None: nothing."""
    if not result:
        return None
    if len(result) > RESULT_KEPT:
        return failure_report("OUTPUT_TOO_LARGE", f"the output is larger than {SIZE_LIMIT} bytes of JSON")
    try:
        answer = parse(result, DEPTH_LIMIT + 1)
    except TooDeep:
        return failure_report("OUTPUT_TOO_DEEP", TOO_DEEP)
    except ValueError:
        return None  # cut short: it died while writing
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
    return failure_report("NO_RESULT", "what the process handed back is not a result")


TOO_DEEP = f"the output is nested more than {DEPTH_LIMIT} levels deep"


def failure_report(code: str, message: str, traceback: str = "", exception: str = "") -> dict[str, Any]:
    """`exception`: the class of what Python code raised, as `package.module.Class`."""
    of_python = {"exception": exception} if exception else {}
    return {"event": "FAILED", "error": {"code": code, "message": message, "traceback": traceback, **of_python}}


def exception_path(error: BaseException) -> str:
    return f"{type(error).__module__}.{type(error).__qualname__}"


def clean(value: Any) -> Any:
    """`value` with NUL and lone surrogates replaced in every text: the control plane refuses both."""
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
    raise ValueError(f"{constant} is no JSON")
