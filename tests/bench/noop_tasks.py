"""Tasks for all measured backends. As a program, enqueue some and print how many per second."""

import sys
import time
from pathlib import Path

import django

if __name__ == "__main__":
    django.setup()

try:
    from django.tasks import task
except ImportError:
    from django_tasks import task


@task
def nothing() -> None:
    pass


@task
def nap(seconds: str) -> None:
    time.sleep(float(seconds))


@task
def hang(marks: str) -> None:
    """Record the start, and run longer than the benchmark waits."""
    with Path(marks).open("a") as file:
        file.write(f"{time.time()}\n")
    time.sleep(3600)


if __name__ == "__main__":
    from tests.bench import noop_tasks as named  # a task is found by its module's name, which is not __main__

    name, number, *arguments = sys.argv[1:]
    getattr(named, name).enqueue(*arguments)  # the first call connects and imports
    began = time.perf_counter()
    for _ in range(int(number) - 1):
        getattr(named, name).enqueue(*arguments)
    print((int(number) - 1) / (time.perf_counter() - began))  # noqa: T201
