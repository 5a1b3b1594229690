"""Refusals of calls about jobs. The docstring of a class is the error message that the caller gets."""

from typing import Any

from controlplane.core.problems import Problem


class NotAWorker(Problem):
    """The server is not of type WORKER, so it may not claim jobs."""

    code = "not_a_worker"


class HeartbeatStale(Problem):
    """The last heartbeat of the worker is stale. Send a heartbeat to get work again."""

    code = "heartbeat_stale"


class TooManyAttempts(Problem):
    """The heartbeat lists more attempts than the server can hold."""

    status = 400
    code = "too_many_attempts"


class TooOften(Problem):
    """The call has more records of one task than allowed. Send them in several calls."""

    status = 400
    code = "too_often"


class AlreadyResubmitted(Problem):
    """The job was already resubmitted as another job. Set `force` to run it once more."""

    code = "already_resubmitted"


class NotResubmitted(Problem):
    """The job was not resubmitted before. Resubmit it without `force`."""

    code = "not_resubmitted"


class CeleryTask(Problem):
    """The job is a Celery task: its broker delivers it, and its worker ends it. Cancel it instead."""

    code = "celery_task"


class ServerCordoned(Problem):
    """The server is cordoned and gets no new work."""

    code = "server_cordoned"


class ServerInMaintenance(Problem):
    """The server is in maintenance and gets no new work."""

    code = "maintenance"


class NotRunningYet(Problem):
    """The server is not RUNNING. It must report that state in a heartbeat before it claims jobs."""

    code = "server_not_running"


class CsrfFailed(Problem):
    """The call has a browser session but not its CSRF token. Send it in the header `X-CSRFToken`."""

    status = 403
    code = "csrf_failed"


class KeyTaken(Problem):
    """The key was already used for a job with different content. Use another key."""

    code = "key_conflict"


class DuplicateJob(Problem):
    """A job with this unique key is already there."""

    code = "duplicate_job"


class JobUnknown(Problem):
    """The job does not exist or is not yours."""

    status = 404
    code = "not_found"


class JobEnded(Problem):
    """The job has ended and cannot be changed."""

    code = "job_ended"


class AlreadyStarted(Problem):
    """The job has started or ended. Only a job that waits can be changed."""

    code = "already_started"


class ImpossibleChange(Problem):
    """The job cannot have this value."""

    status = 400
    code = "invalid"


class JobAlreadyWaiting(Problem):
    """The job already waits for a worker."""

    code = "job_waiting"


class JobBlocked(Problem):
    """The job waits for other steps. It can be cancelled but not failed."""

    code = "job_blocked"


class JobNotWaiting(Problem):
    """The job does not wait for a worker."""

    code = "job_not_waiting"


class NotQuarantined(Problem):
    """The job is not, or no longer, in quarantine."""

    code = "not_quarantined"


class CancelRequested(Problem):
    """The job is being cancelled. It can run again only after that."""

    code = "cancel_requested"


class NoFreshWorkers(Problem):
    """No workers with fresh heartbeats available"""

    status = 503
    code = "no_fresh_workers"

    def body(self) -> dict[str, Any]:
        return {**super().body(), "title": self.__doc__}


class WorkersInMaintenance(NoFreshWorkers):
    """Maintenance: no worker gets new work"""

    code = "workers_in_maintenance"


class WorkersCordoned(NoFreshWorkers):
    """Every worker with the required tags is cordoned or being drained"""

    code = "workers_cordoned"


PROBLEMS_BY_FILTER: dict[str, type[NoFreshWorkers]] = {"maintenance": WorkersInMaintenance, "cordon": WorkersCordoned}
"""Error class for each filter that excludes all workers. All other filters raise NoFreshWorkers."""


class NoRunner(Problem):
    """The fleet has no worker that accepts this action."""

    code = "no_runner"


class TooManyWaiting(Problem):
    """The caller has too many waiting jobs. Submit more when some of them have started."""

    status = 429
    code = "too_many_waiting"


class TooManyTagSets(Problem):
    """The waiting jobs of the caller have too many different sets of tags. Submit more when some have started."""

    status = 429
    code = "too_many_tag_sets"


class QuotaExceeded(Problem):
    """The jobs of the caller use all of their storage. Submit more when retention has deleted old ones."""

    status = 429
    code = "quota_exceeded"

    def headers(self) -> dict[str, str]:
        """Return no Retry-After if one call has more `jobs` than the `limit`, because time does not help then."""
        return {} if self.facts.get("jobs", 0) > self.facts.get("limit", 0) else super().headers()


class TryAgain(Problem):
    """The job with this key was just deleted. Send the same call again to create a new one."""

    status = 503
    code = "try_again"


class SignalTooLarge(Problem):
    """The body of the signal is too large."""

    status = 413
    code = "too_large"


class LimitUnknown(Problem):
    """The limit has no rule of this pattern in the namespace."""

    status = 404
    code = "not_found"


class OnHold(Problem):
    """The work is on hold, and new jobs are refused until the hold ends."""

    code = "on_hold"


class HoldUnknown(Problem):
    """The hold does not exist, or it has ended."""

    status = 404
    code = "not_found"


class BatchUnknown(Problem):
    """The bulk action does not exist or is not yours."""

    status = 404
    code = "not_found"


class BatchEnded(Problem):
    """The bulk action has already ended."""

    code = "batch_ended"
