"""What a call is answered, before granian sends it."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import orjson

from controlplane.core import problems
from controlplane.core.garbage_collection import collect_after_page
from controlplane.core.problems import Problem

JSON = [("Content-Type", "application/json")]
"""The headers of an answer that is one."""

Environ = dict[str, Any]
Application = Callable[[Environ, Callable[..., Any]], Iterable[bytes]]


class Answer(NamedTuple):
    status: int
    headers: list[tuple[str, str]]
    body: bytes


def answered(django: Application, environ: Environ) -> Answer:
    """What Django answers, in this thread, to its last byte: who reads slowly holds none."""
    started: list[Any] = []
    content = django(environ, lambda *status: started.extend(status))
    try:
        body = b"".join(content)
    finally:
        if hasattr(content, "close"):
            content.close()
    answer = Answer(int(started[0].split()[0]), started[1], body)
    if is_page(answer):
        del content  # which holds the request, the context and all that was shown
        collect_after_page()
    return answer


def is_page(answer: Answer) -> bool:
    return any(name == "Content-Type" and kind.startswith("text/html") for name, kind in answer.headers)


def refusal(problem: Problem) -> Answer:
    headers = {"Content-Type": problems.CONTENT_TYPE, **problems.headers_of(problem)}
    return Answer(problem.status, list(headers.items()), orjson.dumps(problem.body()))
