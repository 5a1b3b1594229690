"""Options of jobs, executions, triggers and holds that their submitters choose."""

from controlplane.core.described import Described


class OnWorkerLost(Described):
    """Handling of a running job whose worker is lost."""

    RESUBMIT = "RESUBMIT", "Another worker runs it again."
    FAIL = "FAIL", "It is FAILED with WORKER_CRASHED."


class RetryBackoff(Described):
    """Wait of a failed job before each retry."""

    FIXED = "fixed", "retry_delay_seconds before each retry."
    EXPONENTIAL = "exponential", "retry_delay_seconds before the first retry, then twice as long before each next one."


class Unmatched(Described):
    """Handling of a job that no alive worker may run."""

    FAIL = "fail", "It is failed after UNMATCHED_AFTER."
    WAIT = "wait", "It waits for such a worker."


class Isolation(Described):
    """Process that a worker must give a job. Without it the worker decides."""

    PROCESS = "process", "Each attempt has a process of its own."


class OnDeadline(Described):
    """Handling of a job or an execution that has not ended at its deadline."""

    FLAG = "flag", "It gets the flag deadline_missed, and an alert is sent."
    CANCEL = "cancel", "It is also cancelled, with DEADLINE_MISSED."


class HookOf(Described):
    """Ends of an execution after which a hook runs. No hook runs after somebody has cancelled the execution."""

    ON_ERROR = "on_error", "After it FAILED, or was cancelled because of its timeout or deadline."
    ON_SUCCESS = "on_success", "After it COMPLETED."
    ON_COMPLETE = "on_complete", "After each of these ends."


class UniqueWhile(Described):
    """Time in which the unique key of a job finds it."""

    WAITING = "waiting", "While it waits for a worker."
    ACTIVE = "active", "While it waits or runs."


class OnConflict(Described):
    """Handling of a submission whose unique key finds another job."""

    RETURN = "return", "Return the job that is there."
    REFUSE = "refuse", "Refuse the submission (409, `duplicate_job`)."
    REPLACE = "replace", "Give the waiting job the new payload and priority."
    EXTEND = "extend", "Also move its `available_at`."


class Missed(Described):
    """Handling of slots of a trigger that passed without an evaluation."""

    FIRE_ONCE = "fire_once", "Only the last of them is evaluated."
    SKIP = "skip", "None of them is evaluated."
    FIRE_ALL = "fire_all", "Each of the last 100 is evaluated, in order."


class Overlap(Described):
    """Handling of a slot of a trigger while an earlier execution of it runs, or is evaluated."""

    ALLOW = "allow", "Start it beside the earlier one."
    SKIP = "skip", "Skip the slot."
    QUEUE_ONE = "queue_one", "Queue the first such slot until the earlier one has ended, and skip the others."
    CANCEL_RUNNING = "cancel_running", "Cancel the earlier one, and start the newest slot when it has ended."


class HoldOf(Described):
    """Kind of what a hold holds."""

    ACTION = "action", "All jobs of a type of action, or of one path, handler, task or image."
    TAG = "tag", "All jobs that require a tag."
    LIMIT = "limit", "All jobs with a limit key."
    QUEUE = "queue", "All jobs of a Celery queue, or with the tag queue:NAME."
    NAMESPACE = "namespace", "All jobs of a namespace."
    EXECUTION = "execution", "The steps of an execution and of its children."
    TRIGGER = "trigger", "The evaluations of a trigger."


class HoldMode(Described):
    """Effect of a hold on new submissions. Waiting work does not start in either mode."""

    PAUSE = "pause", "Submissions are accepted and wait."
    REFUSE = "refuse", "Submissions are refused with the note. Retries and resubmissions wait."
