"""What an operator may do to a job or an execution, in words and as a service."""

from django import forms

from controlplane.console.actions.servers import OnceForm, OperatorAction
from jobs.services import guards


class ResubmitForm(OnceForm):
    drop_checkpoint = forms.BooleanField(
        required=False, label="Drop its checkpoint", help_text="It begins anew, not where its code had come to."
    )


JOB_ACTIONS = {
    action.name: action
    for action in (
        OperatorAction(
            "cancel", "Cancel", "A waiting job ends now; a running one when its worker confirms, unless it completes "
            "first.", "jobs.cancel_workerjob",
            "cancel_job",
            guards.ensure_may_cancel_job, is_grave=True,
        ),
        OperatorAction(
            "resubmit", "Resubmit", "One that is held is taken from its worker and waits again; one that has ended is "
            "submitted again, as another job. A Celery task in quarantine goes back to its queue.",
            "jobs.resubmit_workerjob", "resubmit_job", guards.ensure_may_resubmit_job,
            ResubmitForm,
        ),
        OperatorAction(
            "fail", "Fail", "It is FAILED with FAILED_BY_OPERATOR, and never retried.", "jobs.fail_workerjob",
            "fail_job",
            guards.ensure_may_fail_job, is_grave=True,
        ),
    )
}  # fmt: skip


RESUBMIT_AGAIN_ACTION = {
    "resubmit_again": OperatorAction(
        "resubmit_again", "Resubmit again", "It was resubmitted before, as another job. Resubmitted again, both run.",
        "jobs.resubmit_workerjob", "resubmit_job_again", guards.ensure_may_resubmit_job_again,
        ResubmitForm, is_grave=True,
    ),
}  # fmt: skip
"""Apart from the others, so that nobody does it to a whole list by mistake."""

EXECUTION_ACTIONS = {
    action.name: action
    for action in (
        OperatorAction(
            "cancel", "Cancel", "What waits ends now, what runs when its worker confirms; children too. No hook runs.",
            "jobs.cancel_execution",
            "cancel_execution",
            guards.ensure_may_cancel_execution, is_grave=True,
        ),
        OperatorAction(
            "restart", "Restart where it failed", "A new execution starts. Steps that completed are kept, with their "
            "outputs, and do not run again; the others do, and what depends on them. This one stays as it is.",
            "jobs.rerun_execution",
            "restart_execution", guards.ensure_may_restart_execution,
            OnceForm,
        ),
        OperatorAction(
            "rerun", "Run again", "A new execution starts, with the same steps and inputs. This one stays as it is.",
            "jobs.rerun_execution",
            "rerun_execution", guards.ensure_may_rerun_execution,
            OnceForm,
        ),
    )
}  # fmt: skip

DISMISS_ACTION = {
    "dismiss": OperatorAction(
        "dismiss", "Dismiss", "It stays FAILED and leaves the quarantine: somebody has looked at it.",
        "jobs.dismiss_workerjob", "dismiss_job",
        guards.ensure_may_dismiss_job,
    ),
}  # fmt: skip
QUARANTINE_ACTIONS = {"resubmit": JOB_ACTIONS["resubmit"], **DISMISS_ACTION}
