"""Events of actions of operators and clients: the action, its subject, the actor, the time and the note.

Each service writes the event in the transaction of its action. SQL statements that act by themselves use the step
`new_action_event`.
"""

from dataclasses import dataclass

import structlog

from liveness import states
from liveness.models import ServerEvent
from liveness.states import Mover

log = structlog.get_logger()

NAMED_WITH_TYPE = (
    states.Subject.JOB, states.Subject.EXECUTION, states.Subject.TRIGGER, states.Subject.HOLD, states.Subject.TOKEN,
    states.Subject.INCIDENT,
)  # fmt: skip
"""Types that are part of the name for people."""
OPERATOR = f"{Mover.OPERATOR}:"


@dataclass(frozen=True)
class ActionSubject:
    """Subject of an action: its type, its key, and its name if it has one."""

    type: states.Subject
    id: object = ""
    name: str = ""

    def __str__(self) -> str:
        """Return the name for people. It is empty for the whole control plane."""
        if self.type in NAMED_WITH_TYPE:
            return f"{self.type} {self.name or self.id}"
        return self.name


INSTANCE = ActionSubject(states.Subject.INSTANCE)


def format_actor(name: str) -> str:
    """Return the actor of an operator's event: `operator:NAME`."""
    return f"{OPERATOR}{name}"


def record_action(action: str, by: str, note: str, subject: ActionSubject, **of: object) -> None:
    """Write the event of an action and a log line. `of` sets more columns of the event. Do nothing if `by` is empty."""
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


def log_action(action: str, by: str, note: str, subject: ActionSubject) -> None:
    """Write the log line of an action. Its event is already written."""
    who = by.partition(":")[0].capitalize()
    log.info(f"{who}: {action} {subject}".rstrip(), actor=by, reason=note, subject=str(subject.id))
