"""The states of a server and every legal transition between them.

All guards are derived from this table: the services, the CHECK constraint, the database
triggers and the diagrams in the README.
"""

from enum import StrEnum


class ServerType(StrEnum):
    WORKER = "WORKER"
    EXECUTOR = "EXECUTOR"
    SCHEDULER = "SCHEDULER"
    WEBSERVER = "WEBSERVER"
    INDEXER = "INDEXER"


class ServerState(StrEnum):
    CREATED = "CREATED"
    RUNNING = "RUNNING"
    MAINTENANCE = "MAINTENANCE"
    ERROR = "ERROR"
    DISCONNECTED = "DISCONNECTED"
    TERMINATING = "TERMINATING"
    TERMINATED_GRACEFULLY = "TERMINATED_GRACEFULLY"
    TERMINATED_FORCED = "TERMINATED_FORCED"
    NOT_RUNNING = "NOT_RUNNING"
    INACTIVE = "INACTIVE"


class Mover(StrEnum):
    """Who may make a transition."""

    SERVER = "server"
    LIVENESS = "liveness"
    OPERATOR = "operator"


class RestartStrategy(StrEnum):
    """When the running attempts of a lost server are given away (Kestra: workerTaskRestartStrategy)."""

    AFTER_TERMINATION_GRACE_PERIOD = "AFTER_TERMINATION_GRACE_PERIOD"
    IMMEDIATELY = "IMMEDIATELY"
    NEVER = "NEVER"


class Subject(StrEnum):
    """What an event is about."""

    SERVER = "server"
    JOB = "job"
    EXECUTION = "execution"
    TRIGGER = "trigger"
    ATTEMPTS = "attempts"  # all that are stale, whosever they are
    TOKEN = "token"  # noqa: S105 - no secret
    BRAKE = "brake"  # of one type of server
    INSTANCE = "instance"


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

# The one exception to "nothing comes back", for servers that registered under REACTIVATE_ON_HEARTBEAT.
REACTIVATABLE = {_.DISCONNECTED, _.NOT_RUNNING, _.INACTIVE}

INITIAL = _.CREATED
ALIVE = {_.CREATED, _.RUNNING, _.MAINTENANCE}
STOPPED = {_.ERROR, _.TERMINATED_GRACEFULLY, _.TERMINATED_FORCED}
"""A server that says so has stopped the code of its jobs."""
TERMINATED = {_.TERMINATED_GRACEFULLY, _.TERMINATED_FORCED}
RETIRED = {_.NOT_RUNNING, _.INACTIVE}
ENDED = RETIRED | {_.TERMINATED_GRACEFULLY}
"""Its end is nothing to look into, or has been seen to."""
TO_RECOVER = set(_) - ALIVE - RETIRED
MAY_HEARTBEAT = set(_) - TERMINATED - RETIRED - {_.DISCONNECTED}


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
