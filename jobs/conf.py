"""`JOBS` in Django settings; each key also from the environment as JOBS_KEY."""

from dataclasses import dataclass

from controlplane.conf import Conf, Seconds
from jobs.states import OnWorkerLost


@dataclass(frozen=True)
class Jobs:
    claimer_heartbeat_interval: Seconds = 30
    """Between two signs of life of a claimed attempt."""
    runner_heartbeat_interval: Seconds = 30
    """Between two signs of life of a running attempt."""
    on_worker_lost: OnWorkerLost = OnWorkerLost.RESUBMIT
    """What becomes of a running job whose worker is lost, unless the job says otherwise."""
    max_resubmissions: int = 3
    """Losses a job survives; one more and it is FAILED with RESUBMISSIONS_EXHAUSTED."""
    default_timeout: Seconds | None = None
    """For jobs that name no timeout_seconds."""
    sweep_interval: Seconds = 60
    """Between two recovery sweeps."""
    job_retention: Seconds | None = 30 * 86400
    """Ended jobs are kept so long, with their attempts and late reports."""
    heartbeat_retention: Seconds | None = 86400
    """Heartbeats of attempts are kept so long."""


conf = Conf(Jobs, "JOBS")
