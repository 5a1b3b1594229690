"""What can be refused; each class says what happened, in words its caller can act on."""

from typing import Any

from controlplane.core.problems import Problem


class NotAWorker(Problem):
    """Only a server of type WORKER claims jobs."""

    code = "not_a_worker"


class HeartbeatStale(Problem):
    """The heartbeat of this worker is stale: it gets work again after the next one."""

    code = "heartbeat_stale"


class TooManyAttempts(Problem):
    """A heartbeat names more attempts than this server can hold."""

    status = 400
    code = "too_many_attempts"


class TooOften(Problem):
    """This call has more records of one task than a call may have."""

    status = 400
    code = "too_often"


class AlreadyResubmitted(Problem):
    """This job was resubmitted before, as another job. Set `force` to run it once more."""

    code = "already_resubmitted"


class NotResubmitted(Problem):
    """This job was not resubmitted before: resubmit it."""

    code = "not_resubmitted"


class CeleryTask(Problem):
    """This is a Celery task: its broker hands it out, and its worker ends it. Cancel it instead."""

    code = "celery_task"


class ServerCordoned(Problem):
    """This server is cordoned: it gets no new work."""

    code = "server_cordoned"


class Maintenance(Problem):
    """This server is in maintenance: it gets no new work."""

    code = "maintenance"


class NotRunningYet(Problem):
    """This server is not RUNNING: a heartbeat must report that state before it claims."""

    code = "server_not_running"


class CsrfFailed(Problem):
    """A call with a browser session needs its CSRF token."""

    status = 403
    code = "csrf_failed"


class KeyTaken(Problem):
    """This key was used before, for a job with different content."""

    code = "key_conflict"


class JobUnknown(Problem):
    """There is no job with this id, or it is not yours."""

    status = 404
    code = "not_found"


class JobEnded(Problem):
    """This job has ended: nothing changes it any more."""

    code = "job_ended"


class JobWaiting(Problem):
    """This job already waits for a worker: no worker has it."""

    code = "job_waiting"


class JobBlocked(Problem):
    """This job waits for other steps: it can be cancelled, not failed."""

    code = "job_blocked"


class JobNotWaiting(Problem):
    """This job does not wait for a worker."""

    code = "job_not_waiting"


class NotQuarantined(Problem):
    """This job is not in quarantine, or no longer."""

    code = "not_quarantined"


class CancelRequested(Problem):
    """This job is being cancelled: it can be run again only after that."""

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
"""By the filter that rules all workers out; of the others the filter says enough."""


class NoRunner(Problem):
    """No worker of the fleet takes this action."""

    code = "no_runner"


class TooManyWaiting(Problem):
    """Too many of your jobs are waiting: submit more once some of them have started."""

    status = 429
    code = "too_many_waiting"


class TryAgain(Problem):
    """The job that had this key has just been removed; the same call again makes a new one."""

    status = 503
    code = "try_again"


class ExecutionUnknown(Problem):
    """There is no execution with this id, or it is not yours."""

    status = 404
    code = "not_found"


class ExecutionEnded(Problem):
    """This execution has ended: nothing changes it any more."""

    code = "execution_ended"


class ExecutionRunning(Problem):
    """This execution has not ended."""

    code = "execution_running"


class StepHasChild(Problem):
    """This step is an execution of its own: act on that execution."""

    code = "step_has_child"


class TriggerUnknown(Problem):
    """No trigger has this id."""

    status = 404
    code = "not_found"


class TriggerNameTaken(Problem):
    """Another trigger has this name."""

    code = "name_conflict"


class TriggerChanged(Problem):
    """This trigger has just been changed by another call: with both it would have two schedules, or none."""

    code = "trigger_changed"


class TriggerPaused(Problem):
    """This trigger is paused already: no slot of it comes."""

    code = "trigger_paused"


class TriggerNotPaused(Problem):
    """This trigger is not paused."""

    code = "trigger_not_paused"


class EvaluationInFlight(Problem):
    """This trigger is already being evaluated."""

    code = "evaluation_in_flight"


class BatchUnknown(Problem):
    """There is no batch with this id, or it is not yours."""

    status = 404
    code = "not_found"


class BatchEnded(Problem):
    """This bulk action has ended: there is nothing to stop."""

    code = "batch_ended"
