"""Settings in `JOBS` and `ALERTS` of Django's settings. The environment variables JOBS_KEY and ALERTS_KEY override
each key."""

import os
from dataclasses import dataclass
from typing import Any

from django.conf import settings

from controlplane.core.settings_schema import Bytes, Conf, Seconds
from jobs.choices import OnWorkerLost


@dataclass(frozen=True)
class JobsSettings:
    claimer_heartbeat_interval: Seconds = 30
    """Time between two heartbeats of a claimed attempt."""
    runner_heartbeat_interval: Seconds = 30
    """Time between two heartbeats of a running attempt."""
    claimed_stale_after: Seconds = 120
    """A claimed attempt without a heartbeat for so long is requeued."""
    running_stale_after: Seconds = 300
    """A running attempt without a heartbeat for so long is lost, even if its server is alive."""
    auto_requeue_stale_claimed: bool = True
    """False: a stale claimed attempt stays until an operator requeues it."""
    auto_fail_stale_running: bool = True
    """False: a stale running attempt stays until an operator fails it."""
    unmatched_after: Seconds | None = 30
    """A job that no alive worker may run is failed after it has waited so long. None: it waits without limit."""
    wait_after_loss: bool = True
    """True: a job that lost its worker waits for another one, with a flag. False: UNMATCHED_AFTER holds for it too."""
    cancel_timeout: Seconds = 60
    """Time a worker has to confirm a cancellation. After it, the control plane cancels the job itself."""
    on_worker_lost: OnWorkerLost = OnWorkerLost.RESUBMIT
    """Handling of a running job whose worker is lost, unless the job sets its own `on_worker_lost`."""
    max_resubmissions: int = 3
    """Number of lost workers after which a job is still resubmitted. After one more it is FAILED with
    RESUBMISSIONS_EXHAUSTED."""
    default_timeout: Seconds | None = None
    """Timeout of jobs without `timeout_seconds`. None: they have no timeout."""
    waiting_tag_sets_limit: int | None = 1000
    """Largest number of different tag sets among the waiting jobs of one token or session, because each one slows pages
    and sweeps. Jobs beyond it are refused with 429. None: no limit."""
    waiting_limit: int | None = 100_000
    """Largest number of waiting jobs of one token or session. More are refused with 429. None: no limit."""
    stored_bytes_limit: Bytes | None = None
    """Largest size of stored jobs of one token or session, like 500MB. More are refused with 429. None: no limit."""
    sweep_interval: Seconds = 60
    """Time between two recovery sweeps."""
    job_retention: Seconds | None = 30 * 86400
    """Time for which ended jobs are kept, with their attempts and superseded reports. None: they are never deleted."""
    execution_retention: Seconds | None = 30 * 86400
    """Time for which ended executions are kept, with their steps and children, and slots and backfills of triggers.
    None: they are never deleted."""
    heartbeat_retention: Seconds | None = 86400
    """Time for which heartbeats of attempts are kept, at least. A whole day (UTC) is deleted at once. None: they are
    never deleted."""
    history_retention: Seconds | None = 90 * 86400
    """Time for which the hourly figures of the charts are kept. None: they are never deleted."""
    signal_kept: Seconds = 86400
    """Time for which a signal is kept. A step that begins to wait later does not get it."""
    notify_allow_private: bool = False
    """True: addresses in `notify` may be in private networks and on this machine. Then each client that submits work
    can make the control plane post to them."""
    batch_retention: Seconds | None = 30 * 86400
    """Time for which ended bulk actions are kept, with the outcome of each item. None: they are never deleted."""


@dataclass(frozen=True)
class AlertsSettings:
    """Recipients of alerts, and the rules that send them."""

    name: str = "control plane"
    """Name of this control plane in messages."""
    webhook_urls: str = ""
    """Addresses that messages are posted to, separated by white space."""
    webhook_secret: str | None = None
    """Secret that signs posted messages: `whsec_` and 24 to 64 random bytes in base64."""
    webhook_allow_private: bool = False
    """True: addresses in private networks and on this machine are allowed too."""
    email_to: str = ""
    """Recipients of e-mail, separated by white space."""
    email_url: str | None = None
    """Mail server: submission://user:password@host (STARTTLS), smtps://… or smtp://…. None: Django's EMAIL settings."""
    email_from: str | None = None
    """Sender of e-mail. None: DEFAULT_FROM_EMAIL."""
    apprise_urls: str = ""
    """Apprise addresses, separated by white space: slack://…, tgram://…, and many more."""
    heartbeat_url: str | None = None
    """Address that is requested each minute while the liveness check runs. An external dead man's switch can then alert
    when the requests stop."""
    server_lost: bool = True
    """Alert when a server is DISCONNECTED or in ERROR, one alert for each cluster."""
    brake: bool = True
    """Alert when the brake holds servers of a type, in one cluster or in all."""
    check_overdue: bool = True
    """Alert when no liveness check has succeeded for three intervals."""
    quarantine: bool = True
    """Alert when a job is in quarantine."""
    no_matching_worker: bool = True
    """Alert when jobs wait for tags that no alive worker has."""
    stuck_job: bool = True
    """Alert when a job has the flag waits_after_loss, held_by_lost_server, refused_by_all, stale_runner or
    stale_claim."""
    answer_waits: bool = True
    """Alert when a step waits for an answer of a person."""
    deadline_missed: bool = True
    """Alert when a job or an execution has not ended at its deadline."""
    version_skew: bool = False
    """Alert when alive workers of one cluster have several versions."""
    oldest_waiting: Seconds | None = 900
    """Alert when a job has waited longer than this since it last began to wait. None: no such alert."""
    oldest_snapshot: Seconds | None = 300
    """Alert when a transaction, a replication slot or a standby has kept dead rows for longer than this. None: no such
    alert."""
    hold_open: Seconds | None = 86400
    """Alert when a hold has been in force for longer than this. None: no such alert."""
    failures_a_minute: float | None = None
    """Alert when so many jobs failed per minute, over five minutes. Counting stops at 200. None: no such alert."""
    settle_after: Seconds = 60
    """Time after which an incident ends if its cause is not found again. A loss ends when its servers are recovered."""


def console_url() -> str:
    """Return the public address of the console without a slash at its end, or an empty text if it is not set."""
    return str(os.environ.get("CONSOLE_URL") or getattr(settings, "CONSOLE_URL", None) or "").strip().rstrip("/")


conf = Conf(JobsSettings, "JOBS")
alerts_conf = Conf(AlertsSettings, "ALERTS")
TRIGGERS_INTERVAL = 2
"""Seconds between two evaluations of due triggers: a slot is evaluated so late at most."""
STORED_BYTES_INTERVAL = 2
"""Seconds between two counts of the stored bytes of each token."""
BATCHES_INTERVAL = 2
"""Seconds between two runs of bulk actions."""
HISTORY_INTERVAL = 30
"""Seconds between two counts of ended jobs: charts are so old at most."""
PRUNE_INTERVAL = 3600
"""Seconds between two ticks of a daily task, which is late by so much at most. The ticks are this frequent because a
scheduler may not run for a whole day."""


def flag_parameters() -> dict[str, Any]:
    """Return the parameters of the statements that find flagged jobs (`flagged_jobs`)."""
    return {
        **unmatched_parameters(),
        "fails_stale_running": conf().auto_fail_stale_running,
        "running_stale_after": conf().running_stale_after,
        "requeues_stale_claimed": conf().auto_requeue_stale_claimed,
        "claimed_stale_after": conf().claimed_stale_after,
    }


def unmatched_parameters() -> dict[str, Any]:
    """Return the parameters of the rule `waits_for_worker`: how long an unmatched job waits."""
    return {"unmatched_after": conf().unmatched_after, "wait_after_loss": conf().wait_after_loss}
