"""What Celery beat is to start, for a Celery application of one's own:

app.conf.beat_schedule = {**(app.conf.beat_schedule or {}), **controlplane.beat.schedule()}
"""

from typing import Any

from controlplane.core import packages


def intervals() -> dict[str, float]:
    """Each task, and the seconds between two ticks."""
    packages.refuse_others()
    from jobs.conf import BATCHES_INTERVAL, HISTORY_INTERVAL, PRUNE_INTERVAL, TRIGGERS_INTERVAL
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
    }


def schedule() -> dict[str, dict[str, Any]]:
    """The entries to merge; needs Django's settings, and no apps yet."""
    return {task: {"task": task, "schedule": seconds} for task, seconds in intervals().items()}
