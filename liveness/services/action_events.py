"""What an operator did, or a client to its own jobs and executions: an event that says to what, who, when and why. Each
service writes its own, in the transaction in which it acts; statements that act by themselves have the step
`new_action_event`.
"""

from dataclasses import dataclass

import structlog

from liveness import states
from liveness.models import ServerEvent
from liveness.states import Mover

log = structlog.get_logger()

OPERATOR = f"{Mover.OPERATOR}:"


@dataclass(frozen=True)
class Subject:
    """What something was done to: of what type, its key, and its name if it has one."""

    type: states.Subject
    id: object = ""
    name: str = ""

    def __str__(self) -> str:
        """As people say it; the whole instance goes without saying."""
        if self.type in (states.Subject.JOB, states.Subject.EXECUTION, states.Subject.TRIGGER, states.Subject.TOKEN):
            return f"{self.type} {self.name or self.id}"
        return self.name


INSTANCE = Subject(states.Subject.INSTANCE)


def format_actor(name: str) -> str:
    """An operator as events name him: `operator:NAME`."""
    return f"{OPERATOR}{name}"


def record_action(action: str, by: str, note: str, subject: Subject, **of: object) -> None:
    """Write the event of an action, with a line in the log; `of` are further columns. What nobody did has none."""
    if not by:
        return
    ServerEvent.objects.create(
        action=action,
        actor=by,
        reason=note,
        subject_type=subject.type,
        subject_id=str(subject.id),
        subject_name=subject.name,
        **of,
    )
    log_action(action, by, note, subject)


def log_action(action: str, by: str, note: str, subject: Subject) -> None:
    """The log line of an action whose event a statement wrote."""
    who = by.partition(":")[0].capitalize()
    log.info(f"{who}: {action} {subject}".rstrip(), actor=by, reason=note, subject=str(subject.id))
