"""The child process of a callable: `python -m jobs.agent.call package.module:function FD`.

Reads the payload from stdin as JSON, calls the function with it, writes one JSON object to FD: `{"output": …}` or
`{"error": {code, message, traceback}}`. FD is no standard stream, so prints cannot reach it.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from typing import Any

SIZE_LIMIT = 256 * 1024  # bytes of an output as compact JSON in UTF-8: the control plane takes no more


def outcome(path: str, payload: Any) -> str:
    """The JSON object to hand back; raises nothing."""
    try:
        module, _, name = path.partition(":")
        if not module or not name.isidentifier():
            raise ValueError(f"{path!r} is not package.module:function")
        result = getattr(importlib.import_module(module), name)(payload)
    except BaseException as error:  # a SystemExit of the callable is a failure like any other
        return json.dumps({"error": _described(error)})
    try:
        text = json.dumps(result, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        return _problem("RESULT_NOT_JSON", f"the result of {path} is not JSON: {error}")
    if (size := len(text.encode(errors="surrogatepass"))) > SIZE_LIMIT:
        return _problem("OUTPUT_TOO_LARGE", f"the output has {size} bytes of JSON; the limit is {SIZE_LIMIT}")
    return f'{{"output":{text}}}'


def _problem(code: str, message: str) -> str:
    return json.dumps({"error": {"code": code, "message": message, "traceback": ""}})


def _described(error: BaseException) -> dict[str, str]:
    try:
        message = str(error)[:10_000]
    except Exception:
        message = "(its message could not be read)"
    lines = "".join(traceback.format_exception(error))
    return {"code": type(error).__name__, "message": message, "traceback": lines[-4096:]}


def main() -> None:
    path, descriptor = sys.argv[1], int(sys.argv[2])
    os.set_inheritable(descriptor, False)  # what the callable starts must not hold the channel
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # what is printed is seen at once
    payload = json.load(sys.stdin.buffer)
    text = outcome(path, payload)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogatepass") as channel:
        channel.write(text)


if __name__ == "__main__":
    main()
