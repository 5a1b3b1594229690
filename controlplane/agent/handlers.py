"""Functions that a worker knows by a name, as they are written: `@handler("mail")`."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])
FUNCTION = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*:[^\W\d]\w*")
"""How a function of a module is named: package.module:function."""
REGISTERED: dict[str, Callable[..., Any]] = {}


def handler(name: str) -> Callable[[Function], Function]:
    """Jobs of `{"type": "handler", "name": name}` call this function, async or not, with their payload."""

    def register(function: Function) -> Function:
        refuse_local(function, f"handler {name}")
        REGISTERED[name] = function
        return function

    return register


def definition_of(name: str, function: Callable[..., Any]) -> str:
    """`NAME=package.module:function`, by which it is found in another process."""
    return f"{name}={path_of(function, f'handler {name}')}"


def refuse_local(function: Callable[..., Any], use: str) -> None:
    """Raises ValueError for what is no function of a module; `use`: what it is for."""
    if function.__qualname__ != function.__name__:
        raise ValueError(f"{use}: {function.__qualname__} is no function of a module")


def path_of(function: Callable[..., Any], use: str) -> str:
    """`package.module:function`. Raises ValueError for what another process cannot find."""
    refuse_local(function, use)
    module = function.__module__
    if module == "__main__":
        main = sys.modules["__main__"]
        spec = getattr(main, "__spec__", None)
        file = getattr(main, "__file__", None)
        if spec is None and file is None:
            raise ValueError(f"{use}: it is defined in no file, where another process could find it")
        module = spec.name if spec else os.path.splitext(os.path.basename(str(file)))[0]
    return f"{module}:{function.__name__}"


def folder_of_main() -> str | None:
    """Where another process finds the module that was started as a script."""
    main = sys.modules["__main__"]
    file = getattr(main, "__file__", None)
    return os.path.dirname(os.path.abspath(file)) if file and getattr(main, "__spec__", None) is None else None
