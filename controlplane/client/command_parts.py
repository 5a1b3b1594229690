"""Helpers of commands: read JSON files, call the API for each target, and print responses."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from controlplane.agent.clean_text import reason
from controlplane.client import views
from controlplane.client.failures import REFUSED, complain, explain
from controlplane.client.output import Output
from controlplane.client.session import Refused


def read_json(file: str) -> Any:
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{file} cannot be read: {reason(error)}") from None
    return parse_json(text, "Standard input" if file == "-" else file)


def parse_json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where} is not JSON: {error}") from None


def objects(items: Iterable[Any]) -> Iterator[dict[str, Any]]:
    for item in items:
        if not isinstance(item, dict):
            raise ValueError(f"{json.dumps(item)[:60]} is not a JSON object")
        yield item


def call_each(targets: list[str], call: Callable[[str], Any], out: Output) -> int:
    code = 0
    for target in targets:
        try:
            item = call(target)
        except Refused as refused:
            code = complain(f"{target}: {explain(refused)}", REFUSED)
        else:
            out.document(item) if out.is_json else out.line(views.brief(item, target))
    return code


def show_one(item: Any, view: Callable[[Any, Output], None], out: Output) -> int:
    out.document(item) if out.is_json else view(item, out)
    return 0
