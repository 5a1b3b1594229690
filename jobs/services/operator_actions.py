"""What is done by hand to a job, an execution or a trigger is kept, with who did it, when and why."""

import structlog

from liveness.services.operations import OPERATOR, note_event

log = structlog.get_logger()


def record_operator_action(action: str, of: str, by: str, why: str) -> None:
    """An operator's action has an event: of no server, under the name of what it was done `of`, like `job ID`. A client
    acts on what is his own, which is a line in the log where he says why."""
    if by.startswith(OPERATOR):
        note_event(action, by, why, server_name=of)
    elif why:
        log.info(f"Client: {action} {of}", actor=by, reason=why)
