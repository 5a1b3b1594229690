"""What an operator may do to a trigger, in words and as a service."""

from controlplane.console.actions.servers import OnceForm, OperatorAction, OptionalNoteForm
from jobs.services import guards


class OptionalOnceForm(OptionalNoteForm, OnceForm):
    pass


def apply_always(trigger: object) -> None:
    """Nothing is in the way."""


TRIGGER_ACTIONS = {
    action.name: action
    for action in (
        OperatorAction(
            "evaluate", "Evaluate now", "Its job runs now, whatever the schedule says; its answer starts an execution, "
            "or not. Its next slot stays as it is.", "jobs.evaluate_trigger",
            "evaluate_trigger", guards.ensure_may_evaluate_trigger, OptionalOnceForm,
        ),
        OperatorAction(
            "pause", "Pause", "No slot comes until somebody resumes it, and none is missed. An evaluation that is in "
            "flight goes on.", "jobs.change_trigger",
            "pause_trigger", guards.ensure_may_pause_trigger, OptionalNoteForm,
        ),
        OperatorAction(
            "resume", "Resume", "The next slot of its schedule from now comes. What passed meanwhile is not made up "
            "for.", "jobs.change_trigger",
            "resume_trigger", guards.ensure_may_resume_trigger, OptionalNoteForm,
        ),
    )
}  # fmt: skip

DELETE_ACTION = {
    "delete": OperatorAction(
        "delete", "Delete", "It goes, and the list of its slots with it. The executions that it started stay.",
        "jobs.delete_trigger", "delete_trigger", apply_always, is_grave=True, is_removal=True,
    ),
}  # fmt: skip
"""Apart from the others, so that nobody does it to a whole list by mistake."""
