"""`JOBS` in Django settings; each key also from the environment as JOBS_KEY."""

from dataclasses import dataclass
from typing import Any

from controlplane.core.settings_schema import Conf, Seconds
from jobs.states import OnWorkerLost


@dataclass(frozen=True)
class JobsSettings:
    claimer_heartbeat_interval: Seconds = 30
    """Between two signs of life of a claimed attempt."""
    runner_heartbeat_interval: Seconds = 30
    """Between two signs of life of a running attempt."""
    claimed_stale_after: Seconds = 120
    """A claimed attempt without a sign of life for so long is requeued."""
    running_stale_after: Seconds = 300
    """A running attempt without a sign of life for so long is lost, though its server is not."""
    auto_requeue_stale_claimed: bool = True
    """False: stale claims stay until an operator acts."""
    auto_fail_stale_running: bool = True
    """False: stale runners stay until an operator acts."""
    unmatched_after: Seconds | None = 30
    """A job that no alive worker may run is failed after waiting so long. None: it waits for ever."""
    wait_after_loss: bool = True
    """A job that a worker had that is gone waits for another, flagged. False: it is failed as any other."""
    cancel_timeout: Seconds = 60
    """A worker that does not confirm a cancellation for so long has it done for it."""
    on_worker_lost: OnWorkerLost = OnWorkerLost.RESUBMIT
    """What becomes of a running job whose worker is lost, unless the job says otherwise."""
    max_resubmissions: int = 3
    """Losses a job survives; one more and it is FAILED with RESUBMISSIONS_EXHAUSTED."""
    default_timeout: Seconds | None = None
    """For jobs that name no timeout_seconds."""
    waiting_limit: int | None = 100_000
    """So many jobs of one token or session may wait at once; more are refused with 429. None: any number."""
    sweep_interval: Seconds = 60
    """Between two recovery sweeps."""
    job_retention: Seconds | None = 30 * 86400
    """Ended jobs are kept so long, with their attempts and superseded reports."""
    execution_retention: Seconds | None = 30 * 86400
    """Ended executions are kept so long, with their steps and children; slots of triggers too."""
    heartbeat_retention: Seconds | None = 86400
    """Heartbeats of attempts are kept so long."""
    history_retention: Seconds | None = 90 * 86400
    """The figures of each hour, for charts, are kept so long."""
    batch_retention: Seconds | None = 30 * 86400
    """Bulk actions that have ended are kept so long, with what came of each item."""


@dataclass(frozen=True)
class AlertsSettings:
    """Who is told when something is wrong, and of what; docs/alerts.md."""

    name: str = "control plane"
    """What messages call this instance."""
    webhook_urls: str = ""
    """Addresses, separated by white space, that messages are posted to."""
    webhook_secret: str | None = None
    """Signs what is posted: `whsec_` and 24 to 64 random bytes in base64."""
    webhook_allow_private: bool = False
    """True: an address may lead into a private network, or to this machine."""
    email_to: str = ""
    """Addresses, separated by white space."""
    email_url: str | None = None
    """Its server: submission://user:password@host (STARTTLS), smtps://… or smtp://…. None: Django's EMAIL settings."""
    email_from: str | None = None
    """Whom e-mail is from. None: DEFAULT_FROM_EMAIL."""
    apprise_urls: str = ""
    """Addresses as Apprise has them, separated by white space: slack://…, tgram://…, and many more."""
    heartbeat_url: str | None = None
    """Asked for each minute while the liveness check runs: a dead man's switch elsewhere tells when that stops."""
    server_lost: bool = True
    """A server is DISCONNECTED or in ERROR, by cluster."""
    brake: bool = True
    """The brake holds a type of server, everywhere or in a cluster."""
    check_overdue: bool = True
    """No liveness check has gone through for three intervals."""
    quarantine: bool = True
    """A job is in quarantine."""
    no_matching_worker: bool = True
    """Jobs wait for tags that no alive worker has."""
    version_skew: bool = False
    """Alive workers of one cluster run several versions."""
    oldest_waiting: Seconds | None = 900
    """A job has waited for longer. None: off."""
    failures_a_minute: float | None = None
    """So many jobs failed each minute, over five minutes. More than 200 are not counted. None: off."""
    settle_after: Seconds = 60
    """What is not found for so long is over."""


conf = Conf(JobsSettings, "JOBS")
alerts_conf = Conf(AlertsSettings, "ALERTS")
TRIGGERS_INTERVAL = 2
"""Seconds: how late a slot may be evaluated."""
BATCHES_INTERVAL = 2
"""Seconds between two goes at bulk actions."""
HISTORY_INTERVAL = 30
"""Seconds between two counts of what has ended: charts are so old at most."""
PRUNE_INTERVAL = 3600
"""Seconds between the ticks of what is done once a day: so late it may be, and a scheduler need not live for a day."""


def unmatched_parameters() -> dict[str, Any]:
    """What `waits_for_worker` asks: for how long a job waits that no alive worker may run."""
    return {"unmatched_after": conf().unmatched_after, "wait_after_loss": conf().wait_after_loss}
