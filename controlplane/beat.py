"""Schedule of the control plane's tasks for the Celery beat of another application:

app.conf.beat_schedule = {**(app.conf.beat_schedule or {}), **controlplane.beat.schedule()}
"""

from typing import Any

from controlplane.core import packages


def intervals() -> dict[str, float]:
    """Return each task with the seconds between two runs."""
    packages.refuse_others()
    from jobs.conf import BATCHES_INTERVAL, HISTORY_INTERVAL, PRUNE_INTERVAL, STORED_BYTES_INTERVAL, TRIGGERS_INTERVAL
    from jobs.conf import conf as jobs
    from liveness.conf import conf as liveness

    return {
        "jobs.tasks.check_liveness": liveness().interval,
        "jobs.tasks.sweep_jobs": jobs().sweep_interval,
        "jobs.tasks.evaluate_triggers": TRIGGERS_INTERVAL,
        "jobs.tasks.run_batches": BATCHES_INTERVAL,
        "jobs.tasks.count_history": HISTORY_INTERVAL,
        "jobs.tasks.send_alerts": liveness().interval,
        "jobs.tasks.prune": PRUNE_INTERVAL,
        **({} if jobs().stored_bytes_limit is None else {"jobs.tasks.count_stored_bytes": STORED_BYTES_INTERVAL}),
    }


def schedule() -> dict[str, dict[str, Any]]:
    """Return the entries for `beat_schedule`. This needs Django's settings but no loaded apps."""
    return {task: {"task": task, "schedule": seconds} for task, seconds in intervals().items()}
