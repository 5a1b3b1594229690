"""Data of other steps in a payload. It is used as it is: nothing in it is a reference to a secret."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from controlplane.agent.secrets.values import MASK, hides_value, mask


def take_out(payload: Any, pointers: Iterable[str]) -> tuple[Any, dict[str, Any]]:
    """Return a copy of the payload with null at these JSON pointers, and what was there."""
    taken = {}
    for pointer in pointers:
        payload, taken[pointer] = _exchange(payload, _names(pointer), None)
    return payload, taken


def put_back(payload: Any, taken: Mapping[str, Any]) -> Any:
    """Return a copy of the payload with these values at their JSON pointers."""
    for pointer, value in taken.items():
        payload, _ = _exchange(payload, _names(pointer), value)
    return payload


def mask_payload(payload: Any, paths: Mapping[str, str] | None) -> Any:
    """Return the payload of a step as it may be shown. `paths` are those of its data, by JSON pointer."""
    if payload is None or not paths:
        return mask(payload)
    return mask(put_back(payload, {at: MASK for at, path in paths.items() if hides_value(path)}))


def _names(pointer: str) -> list[str]:
    return [name.replace("~1", "/").replace("~0", "~") for name in pointer.split("/")[1:]]


def _exchange(value: Any, names: list[str], new: Any) -> tuple[Any, Any]:
    """Return a copy of the value with `new` at the end of these names, and what was there."""
    if not names:
        return new, value
    copy = value.copy()
    key: Any = int(names[0]) if isinstance(copy, list) else names[0]
    copy[key], old = _exchange(copy[key], names[1:], new)
    return copy, old
