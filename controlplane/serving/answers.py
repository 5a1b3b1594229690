"""Responses to calls, as the front sends them."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from controlplane.core import problems
from controlplane.core.garbage_collection import collect_after_page
from controlplane.core.json_bodies import write_json
from controlplane.core.problems import Problem
from controlplane.core.unavailable_page import CONTENT_TYPE, build_unavailable_page, wants_page

JSON = [("Content-Type", "application/json"), *problems.UNCACHED.items()]
"""Headers of a JSON response of the API."""

BLOCK = 64 * 1024

Environ = dict[str, Any]
Application = Callable[[Environ, Callable[..., Any]], Iterable[bytes]]


class Answer(NamedTuple):
    status: int
    headers: list[tuple[str, str]]
    body: bytes
    path: str | None = None
    """Path of a file that is sent instead of `body`."""


class FileContent:
    """File in a response of Django (WSGI's `file_wrapper`). granian sends it from the disk."""

    def __init__(self, file: Any, block_size: int = 8192) -> None:
        self.file = file

    @property
    def path(self) -> str | None:
        """Path of the file if all of it is sent. None if only a part is sent."""
        name = getattr(self.file, "name", None)
        return name if isinstance(name, str) else None

    def __iter__(self) -> "FileContent":
        return self

    def __next__(self) -> bytes:
        if block := self.file.read(BLOCK):
            return bytes(block)
        raise StopIteration

    def close(self) -> None:
        self.file.close()


def answered(django: Application, environ: Environ) -> Answer:
    """Return Django's whole response. This runs in a thread; sending does not, so a slow client holds no thread."""
    started: list[Any] = []
    content = django(environ, lambda *status: started.extend(status))
    path = content.path if isinstance(content, FileContent) else None
    try:
        body = b"" if path else b"".join(content)
    finally:
        if hasattr(content, "close"):
            content.close()
    answer = Answer(int(started[0].split()[0]), started[1], body, path)
    if is_page(answer):
        del content  # drop the reference to the request, the context and the shown rows
        collect_after_page()
    return answer


def is_page(answer: Answer) -> bool:
    return any(name == "Content-Type" and kind.startswith("text/html") for name, kind in answer.headers)


def refuse_browser(problem: Problem, path: str, method: str, accept: str) -> Answer:
    """Return a refusal: as a page if a person opened this address in a browser, otherwise as a problem document."""
    answer = refusal(problem)
    if problem.status not in problems.LIMITING or not wants_page(path, accept):
        return answer
    page = build_unavailable_page(problem.detail, reloads=method in problems.SAFE_METHODS)
    headers = [(name, CONTENT_TYPE if name == "Content-Type" else value) for name, value in answer.headers]
    return Answer(problem.status, headers, page)


def refusal(problem: Problem) -> Answer:
    headers = {"Content-Type": problems.CONTENT_TYPE, **problems.UNCACHED, **problem.headers()}
    return Answer(problem.status, list(headers.items()), write_json(problem.body()))
