"""Tasks of a Django project. Import this module only when TASKS is set."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

from controlplane.agent import progress

try:
    from django.tasks import TaskContext, task
except ImportError:
    from django_tasks import TaskContext, task


class OutOfStamps(Exception):
    """Error that only this project defines."""


@task
def add(a: int, b: int = 0) -> int:
    return a + b


@task
async def add_later(a: int, b: int) -> int:
    return a + b


@task
async def meet(folder: str, number: int, expected: int) -> list[Any]:
    """Wait until so many of these tasks run at once. Return the process id and if there are users."""
    from django.contrib.auth import get_user_model

    has_users = await get_user_model().objects.aexists()
    (Path(folder) / f"meets-{number}").touch()
    while len(list(Path(folder).glob("meets-*"))) < expected:
        await asyncio.sleep(0.05)
    return [os.getpid(), has_users]


@task(priority=10, queue_name="mail")
def send(to: str) -> dict[str, str]:
    return {"sent": to}


@task
def fail(message: str) -> None:
    raise OutOfStamps(message)


@task
def fail_with_django() -> None:
    from django.contrib.auth import get_user_model

    get_user_model().objects.get(username="nobody")


@task
def give_back(what: str) -> Any:
    return {"tuple": (1, 2), "set": {1}, "large": "x" * 300_000}[what]


@task(takes_context=True)
def describe(context: TaskContext, word: str) -> dict[str, Any]:
    progress(0.5, word)
    result = context.task_result
    return {"attempt": context.attempt, "id": result.id, "status": result.status, "word": word, "args": result.args}


@task(takes_context=True)
def die_once(context: TaskContext, marks: str) -> dict[str, Any]:
    """Kill the worker in the first attempt."""
    Path(marks, f"attempt-{context.attempt}").write_text(str(os.getppid()))
    if context.attempt == 1:
        signal.pause()
    return {"attempt": context.attempt, "before": [error.exception_class_path for error in context.task_result.errors]}


def not_a_task() -> None:
    raise AssertionError("only tasks are run")
