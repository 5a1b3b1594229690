"""Answers of calls."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from controlplane.core import problems
from controlplane.core.garbage_collection import collect_after_page
from controlplane.core.json_bodies import write_json
from controlplane.core.problems import Problem
from controlplane.core.unavailable_page import CONTENT_TYPE, build_unavailable_page, wants_page

JSON = [("Content-Type", "application/json"), *problems.UNCACHED.items()]
"""Headers of a JSON answer of the API."""

BLOCK = 64 * 1024

Environ = dict[str, Any]
Application = Callable[[Environ, Callable[..., Any]], Iterable[bytes]]


class Answer(NamedTuple):
    status: int
    headers: list[tuple[str, str]]
    body: bytes
    path: str | None = None
    """The file to send instead of a body."""


class FileContent:
    """A file that Django answers with: WSGI's `file_wrapper`. granian sends it from the disk."""

    def __init__(self, file: Any, block_size: int = 8192) -> None:
        self.file = file

    @property
    def path(self) -> str | None:
        """The path of the whole file. None for a part of one."""
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
    """Return the whole answer of Django. Runs in a thread, so that a slow reader holds no thread."""
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
        del content  # it refers to the request, the context and the shown rows
        collect_after_page()
    return answer


def is_page(answer: Answer) -> bool:
    return any(name == "Content-Type" and kind.startswith("text/html") for name, kind in answer.headers)


def refuse_browser(problem: Problem, path: str, method: str, accept: str) -> Answer:
    """Return the refusal as a page if a person opened this address in a browser."""
    answer = refusal(problem)
    if problem.status not in problems.LIMITING or not wants_page(path, accept):
        return answer
    page = build_unavailable_page(problem.detail, reloads=method in problems.SAFE_METHODS)
    headers = [(name, CONTENT_TYPE if name == "Content-Type" else value) for name, value in answer.headers]
    return Answer(problem.status, headers, page)


def refusal(problem: Problem) -> Answer:
    headers = {"Content-Type": problems.CONTENT_TYPE, **problems.UNCACHED, **problem.headers()}
    return Answer(problem.status, list(headers.items()), write_json(problem.body()))
