"""The states of a server and every legal transition between them.

All guards are derived from this table: the services, the CHECK constraint, the database
triggers and the diagrams in docs/reference.md.
"""

from controlplane.core.described import Described


class ServerType(Described):
    WORKER = "WORKER", "Runs the code of jobs: the only type that claims."
    EXECUTOR = "EXECUTOR", "Runs the liveness check and the recovery sweep."
    SCHEDULER = "SCHEDULER", "Says when periodic work is due."
    WEBSERVER = "WEBSERVER", "Answers the API and the pages."
    INDEXER = "INDEXER", "Prepares data for searching; the control plane has none of its own."


class Mover(Described):
    """Who may make a transition."""

    SERVER = "server", "The server itself, by a heartbeat."
    LIVENESS = "liveness", "The liveness check."
    OPERATOR = "operator", "A person, by a page, a command or the API."


class RestartStrategy(Described):
    """When the running attempts of a lost server are given away (Kestra: workerTaskRestartStrategy)."""

    AFTER_TERMINATION_GRACE_PERIOD = "AFTER_TERMINATION_GRACE_PERIOD", "Once its termination grace period has passed."
    IMMEDIATELY = "IMMEDIATELY", "At the check that finds it lost."
    NEVER = "NEVER", "Not at all: they stay where they are until an operator resubmits or fails them."


class ServerState(Described):
    """What a server is doing. Each line says what it means, and who moves the server on: mostly the liveness check."""

    CREATED = "CREATED", "It has registered. Its first heartbeat makes it RUNNING; silence, DISCONNECTED."
    RUNNING = "RUNNING", "It heartbeats and may get work. It moves on by itself; silence makes it DISCONNECTED."
    MAINTENANCE = "MAINTENANCE", "It heartbeats and takes no new work. It goes back to RUNNING by itself, or ends."
    ERROR = "ERROR", "It has reported that it failed. The check moves its jobs, then retires it."
    DISCONNECTED = "DISCONNECTED", "It was silent for its timeout, or an operator gave it up. The check retires it."
    TERMINATING = (
        "TERMINATING",
        "It finishes its jobs and shuts down. It reports how it ended, or the check retires it.",
    )
    TERMINATED_GRACEFULLY = "TERMINATED_GRACEFULLY", "It has ended, its jobs finished. The check retires it."
    TERMINATED_FORCED = "TERMINATED_FORCED", "It has ended with unfinished jobs. The check moves them, then retires it."
    NOT_RUNNING = "NOT_RUNNING", "It is gone and holds nothing. The next liveness check makes it INACTIVE."
    INACTIVE = "INACTIVE", "It has been gone since the check before. Nobody moves it on; retention deletes it."


class Subject(Described):
    """What an event is about."""

    SERVER = "server", "A server, by its id."
    JOB = "job", "A job, by its id."
    EXECUTION = "execution", "An execution, by its id."
    TRIGGER = "trigger", "A trigger, by its id."
    ATTEMPTS = "attempts", "All attempts that are stale, whosever they are."
    TOKEN = "token", "An API token, by its id."
    BRAKE = "brake", "The brake on one type of server."
    INSTANCE = "instance", "The whole control plane."


S, C, O = Mover.SERVER, Mover.LIVENESS, Mover.OPERATOR  # noqa: E741
_ = ServerState

TRANSITIONS: dict[ServerState, dict[ServerState, set[Mover]]] = {
    _.CREATED: {_.RUNNING: {S}, _.TERMINATING: {S}, _.ERROR: {S}, _.DISCONNECTED: {C, O}},
    _.RUNNING: {_.MAINTENANCE: {S}, _.TERMINATING: {S}, _.ERROR: {S}, _.DISCONNECTED: {C, O}},
    _.MAINTENANCE: {_.RUNNING: {S}, _.TERMINATING: {S}, _.ERROR: {S}, _.DISCONNECTED: {C, O}},
    _.ERROR: {_.TERMINATING: {S}, _.NOT_RUNNING: {C}},
    _.DISCONNECTED: {_.TERMINATING: {S}, _.NOT_RUNNING: {C}},
    _.TERMINATING: {_.TERMINATED_GRACEFULLY: {S}, _.TERMINATED_FORCED: {S}, _.NOT_RUNNING: {C}},
    _.TERMINATED_GRACEFULLY: {_.NOT_RUNNING: {C}},
    _.TERMINATED_FORCED: {_.NOT_RUNNING: {C}},
    _.NOT_RUNNING: {_.INACTIVE: {C}},
    _.INACTIVE: {},
}

INITIAL = _.CREATED

REACTIVATABLE = {_.DISCONNECTED, _.NOT_RUNNING, _.INACTIVE}
"""The one exception to "nothing comes back": a heartbeat makes these RUNNING again, if they registered under
REACTIVATE_ON_HEARTBEAT."""
ALIVE = {_.CREATED, _.RUNNING, _.MAINTENANCE}
"""It is expected to heartbeat. The server moves on, or the liveness check when it falls silent."""
STOPPED = {_.ERROR, _.TERMINATED_GRACEFULLY, _.TERMINATED_FORCED}
"""A server that reports one of these has stopped the code of its jobs. The liveness check moves on."""
LOST = {_.DISCONNECTED, _.ERROR}
"""It fell silent, was given up, or failed: its end is an incident. The liveness check moves on."""
TERMINATED = {_.TERMINATED_GRACEFULLY, _.TERMINATED_FORCED}
"""The ends that a server reports itself. The liveness check moves on."""
RETIRED = {_.NOT_RUNNING, _.INACTIVE}
"""It is gone and holds no attempt. The liveness check moves on to INACTIVE, where it stays."""
ENDED = RETIRED | {_.TERMINATED_GRACEFULLY}
"""Its end is nothing to look into, or has been seen to. The liveness check moves on to INACTIVE."""
TROUBLED = set(_) - ALIVE - ENDED
"""It is on its way out otherwise than well, or lost. The liveness check moves on."""
TO_RECOVER = set(_) - ALIVE - RETIRED
"""What it holds is recovered. The liveness check retires it when nothing is left."""
MAY_HEARTBEAT = set(_) - TERMINATED - RETIRED - {_.DISCONNECTED}
"""Its heartbeats are accepted: in any other state they are refused, unless it is reactivated."""


def is_legal_transition(from_: ServerState, to: ServerState, mover: Mover, *, reactivates: bool = False) -> bool:
    """Whether `mover` may take a server from one state to the other."""
    if reactivates and mover == S and from_ in REACTIVATABLE and to == ServerState.RUNNING:
        return True
    return mover in TRANSITIONS[from_].get(to, set())


def server_reported_states() -> set[ServerState]:
    """The states a server may name in a heartbeat."""
    return {to for moves in TRANSITIONS.values() for to, movers in moves.items() if S in movers}


def reactivation_transitions() -> list[tuple[str, str]]:
    """Every (from, to) that is legal only where reactivation is switched on."""
    return [(from_.value, ServerState.RUNNING.value) for from_ in sorted(REACTIVATABLE)]


def legal_transitions() -> list[tuple[str, str]]:
    """Every legal (from, to), for the database's guard."""
    return [(from_.value, to.value) for from_, moves in TRANSITIONS.items() for to in moves]
