"""Contain exceptions of tasks, so that they end the task and not its worker.

Some exceptions of a task make Celery end the worker: MemoryError in its main process, and SystemExit and
KeyboardInterrupt in pools without processes. The worker then ends in an orderly way, so the task would not count as
lost.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

from billiard.einfo import ExceptionInfo, ExceptionWithTraceback  # type: ignore[attr-defined]
from billiard.exceptions import TimeLimitExceeded, WorkerLostError


def raised(exc_info: Any) -> BaseException:
    """Return the exception that the task raised."""
    exception = exc_info.exception
    cause: BaseException = exception.exc if isinstance(exception, ExceptionWithTraceback) else exception
    return cause


def as_plain_failure(exc_info: Any, *, is_stored: bool) -> Any:
    """Return `exc_info` with an exception of the same name that Celery handles like any other.

    `is_stored` means that the code of the task raised the exception, and its FAILURE is stored. Then WorkerLostError
    and TimeLimitExceeded are plain failures, too.
    """
    exception = raised(exc_info)
    special = (MemoryError, WorkerLostError, TimeLimitExceeded) if is_stored else MemoryError
    if not isinstance(exception, special):
        return exc_info
    kind = type(exception)
    plain = type(kind.__name__, (Exception,), {"__module__": kind.__module__})
    contained = copy.copy(exc_info)
    contained.exception = plain(*exception.args)
    return contained


def contain(pool: Any) -> None:
    """Make a pool without processes report exceptions that escape from a task.

    Otherwise they would end the worker, or be lost.
    """
    apply = pool.apply_async

    def apply_async(target: Callable[..., Any], *args: Any, **options: Any) -> Any:
        return apply(partial(_run_contained, target), *args, **options)

    pool.apply_async = apply_async


def _run_contained(target: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    # BaseException is not caught, because the exceptions of greenlets belong to their pool.
    try:
        return target(*args, **kwargs)
    except (Exception, SystemExit, KeyboardInterrupt):
        return ExceptionInfo()
