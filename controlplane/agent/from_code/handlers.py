"""The decorator `@handler("mail")`: functions that a worker knows by a name."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])
FUNCTION = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*:[^\W\d]\w*")
"""The path of a function: package.module:function."""
REGISTERED: dict[str, Callable[..., Any]] = {}


def handler(name: str) -> Callable[[Function], Function]:
    """Register a function, async or not. Jobs of `{"type": "handler", "name": name}` call it with their payload.

    Raise ValueError if the function is not defined at the top level of a module.
    """

    def register(function: Function) -> Function:
        refuse_local(function, f"handler {name}")
        REGISTERED[name] = function
        return function

    return register


def definition_of(name: str, function: Callable[..., Any]) -> str:
    """Return `NAME=package.module:function`, by which another process finds the function."""
    return f"{name}={path_of(function, f'handler {name}')}"


def refuse_local(function: Callable[..., Any], use: str) -> None:
    """Raise ValueError if the function is not defined at the top level of a module. `use` is for the message."""
    if function.__qualname__ != function.__name__:
        raise ValueError(f"{use}: {function.__qualname__} is not a top-level function of a module")


def path_of(function: Callable[..., Any], use: str) -> str:
    """Return `package.module:function`. Raise ValueError if another process could not find the function."""
    refuse_local(function, use)
    module = function.__module__
    if module == "__main__":
        main = sys.modules["__main__"]
        spec = getattr(main, "__spec__", None)
        file = getattr(main, "__file__", None)
        if spec is None and file is None:
            raise ValueError(f"{use}: the function is not defined in a file, so another process cannot import it")
        module = spec.name if spec else os.path.splitext(os.path.basename(str(file)))[0]
    return f"{module}:{function.__name__}"


def folder_of_main() -> str | None:
    """Return the folder in which another process finds the main script as a module, or None."""
    main = sys.modules["__main__"]
    file = getattr(main, "__file__", None)
    return os.path.dirname(os.path.abspath(file)) if file and getattr(main, "__spec__", None) is None else None
