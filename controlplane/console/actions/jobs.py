"""Operator actions on jobs and executions."""

from typing import Any

from django import forms

from controlplane.console.actions.servers import OnceForm, OperatorAction, OptionalNoteForm
from jobs.services import guards


class ResubmitForm(OnceForm):
    drop_checkpoint = forms.BooleanField(
        required=False, label="Delete the checkpoint", help_text="The job starts from the beginning."
    )


class RunNowForm(OptionalNoteForm):
    def clean(self) -> dict[str, Any]:
        return {**self.cleaned_data, "changes": {"available_at": None}}


JOB_ACTIONS = {
    action.name: action
    for action in (
        OperatorAction(
            "cancel", "Cancel", "A waiting job ends now. A running job ends when its worker confirms, unless it "
            "completes first.", "jobs.cancel_workerjob",
            "cancel_job",
            guards.ensure_may_cancel_job, is_grave=True, done="Cancelled", requested="Cancellation requested",
        ),
        OperatorAction(
            "resubmit", "Resubmit", "A running job is taken from its worker and waits again. An ended job is "
            "submitted again unchanged, as a new job: use Run again to change it first. A Celery task in quarantine "
            "goes back to its queue.",
            "jobs.resubmit_workerjob", "resubmit_job", guards.ensure_may_resubmit_job,
            ResubmitForm,
        ),
        OperatorAction(
            "fail", "Fail", "The job is FAILED with FAILED_BY_OPERATOR and is never retried.", "jobs.fail_workerjob",
            "fail_job",
            guards.ensure_may_fail_job, is_grave=True,
        ),
    )
}  # fmt: skip


RUN_NOW_ACTION = {
    "run_now": OperatorAction(
        "run_now", "Run now", "A worker may claim the job at once, before the time for which it is scheduled.",
        "jobs.change_workerjob", "change_job", guards.ensure_may_run_now, RunNowForm, done="Scheduled for now",
    ),
}  # fmt: skip
DUMP_STACK_ACTION = {
    "dump_stack": OperatorAction(
        "dump_stack", "Dump stack", "The worker reads the stacks of all threads of the code with its next heartbeats, "
        "and this page shows them. The job continues.",
        "jobs.dump_workerjob", "dump_stack", guards.ensure_may_dump_stack, OptionalNoteForm, done="Stack requested",
    ),
}  # fmt: skip
RESUBMIT_AGAIN_ACTION = {
    "resubmit_again": OperatorAction(
        "resubmit_again", "Resubmit again", "This job was already resubmitted as another job. Both will run.",
        "jobs.resubmit_workerjob", "resubmit_job_again", guards.ensure_may_resubmit_job_again,
        ResubmitForm, is_grave=True,
    ),
}  # fmt: skip
"""Kept apart from the other actions, so that lists do not offer it."""

EXECUTION_ACTIONS = {
    action.name: action
    for action in (
        OperatorAction(
            "cancel", "Cancel", "Waiting steps end now, running steps when their worker confirms. Child executions end "
            "too. No hook runs.",
            "jobs.cancel_execution",
            "cancel_execution",
            guards.ensure_may_cancel_execution, is_grave=True, done="Cancelled",
            requested="Cancellation requested",
        ),
        OperatorAction(
            "seal", "Seal", "No steps can be added any more. The execution ends when all of its steps have ended.",
            "jobs.seal_execution", "seal_execution", guards.ensure_may_seal_execution, done="Sealed",
        ),
        OperatorAction(
            "restart", "Retry failed steps", "A new execution starts. It keeps completed steps with their outputs "
            "and runs the other steps and their dependents. This execution does not change.",
            "jobs.rerun_execution",
            "restart_execution", guards.ensure_may_restart_execution,
            OnceForm,
        ),
        OperatorAction(
            "rerun", "Run again", "A new execution starts with the same steps and inputs. This one does not change.",
            "jobs.rerun_execution",
            "rerun_execution", guards.ensure_may_rerun_execution,
            OnceForm,
        ),
    )
}  # fmt: skip

DISMISS_ACTION = {
    "dismiss": OperatorAction(
        "dismiss", "Dismiss", "The job stays FAILED and leaves the quarantine, because it was reviewed.",
        "jobs.dismiss_workerjob", "dismiss_job",
        guards.ensure_may_dismiss_job,
    ),
}  # fmt: skip
QUARANTINE_ACTIONS = {"resubmit": JOB_ACTIONS["resubmit"], **DISMISS_ACTION}
