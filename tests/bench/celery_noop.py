"""Celery application with one task that does nothing. As a program, enqueue some and print how many per second."""

import os
import sys
import time

from celery import Celery

app = Celery("tests.bench.celery_noop", broker=os.environ["BROKER_URL"])


@app.task(name="tests.bench.celery_noop.nothing", ignore_result=True)
def nothing() -> None:
    pass


if __name__ == "__main__":
    number = int(sys.argv[1])
    nothing.delay()  # the first call connects
    began = time.perf_counter()
    for _ in range(number - 1):
        nothing.delay()
    print((number - 1) / (time.perf_counter() - began))  # noqa: T201
