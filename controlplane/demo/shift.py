"""Jobs that the demo submits, one after the other, in rounds."""

from collections.abc import Iterator
from itertools import count
from typing import Any

Job = dict[str, Any]


def script_job(command: str) -> Job:
    return {"action": {"type": "script", "command": command}}


def callable_job(function: str, **payload: Any) -> Job:
    return {"action": {"type": "callable", "path": f"controlplane.demo.work:{function}"}, "payload": payload}


def yearly_report_job(year: int) -> Job:
    """Return a job that is long enough (12 s) for the accident."""
    return callable_job("yearly_report", year=year)


def demo_jobs() -> Iterator[Job]:
    """Yield jobs without end. An invoice is refused about once in a quarter of an hour; see `work.is_refused`."""
    for round_ in count(1):
        yield callable_job("resize_pictures", pictures=6)
        yield script_job('for step in 1 2 3; do echo "step $step of 3"; sleep 1; done')
        yield callable_job("send_invoice", customer=2 * round_ - 1)
        yield script_job("echo backing up; sleep 5; echo done")
        yield callable_job("send_invoice", customer=2 * round_)
        yield callable_job("resize_pictures", pictures=20)
        yield yearly_report_job(2000 + round_)
