"""Operator actions on triggers."""

from controlplane.console.actions.servers import OnceForm, OperatorAction, OptionalNoteForm
from jobs.services import guards


class OptionalOnceForm(OptionalNoteForm, OnceForm):
    pass


def apply_always(trigger: object) -> None:
    """Accept every trigger."""


TRIGGER_ACTIONS = {
    action.name: action
    for action in (
        OperatorAction(
            "evaluate", "Evaluate now", "The evaluation job runs now. Its output decides whether an execution starts. "
            "The next slot does not change.", "jobs.evaluate_trigger",
            "evaluate_trigger", guards.ensure_may_evaluate_trigger, OptionalOnceForm,
        ),
        OperatorAction(
            "pause", "Pause", "No slot is due until the trigger is resumed, and none counts as missed. A running "
            "evaluation continues.", "jobs.change_trigger",
            "pause_trigger", guards.ensure_may_pause_trigger, OptionalNoteForm,
        ),
        OperatorAction(
            "resume", "Resume", "The schedule continues with the next slot from now. Slots during the pause are "
            "skipped.", "jobs.change_trigger",
            "resume_trigger", guards.ensure_may_resume_trigger, OptionalNoteForm,
        ),
    )
}  # fmt: skip

DELETE_ACTION = {
    "delete": OperatorAction(
        "delete", "Delete", "The trigger and its list of slots are deleted. Executions that it started are kept.",
        "jobs.delete_trigger", "delete_trigger", apply_always, is_grave=True, is_removal=True,
    ),
}  # fmt: skip
"""Kept apart from the other actions, so that lists do not offer it."""
