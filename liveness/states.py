"""States of a server and every legal transition between them.

All guards are derived from this table: the services, the CHECK constraint, the database triggers, and the diagrams in
the documentation.
"""

from controlplane.core.described import Described


class ServerType(Described):
    WORKER = "WORKER", "Runs the code of jobs. It is the only type that claims jobs."
    EXECUTOR = "EXECUTOR", "Runs the liveness check and the recovery sweep."
    SCHEDULER = "SCHEDULER", "Starts periodic tasks when they are due."
    WEBSERVER = "WEBSERVER", "Serves the API and the pages."
    INDEXER = "INDEXER", "Prepares data for searching. The control plane itself has no indexer."


class Mover(Described):
    """Parties that may make a transition."""

    SERVER = "server", "The server itself, by a heartbeat or by the report of its end."
    LIVENESS = "liveness", "The liveness check."
    OPERATOR = "operator", "A person, by a page, a command or the API."


class RestartStrategy(Described):
    """Setting: when the running attempts of a lost server are recovered (in Kestra: workerTaskRestartStrategy)."""

    AFTER_TERMINATION_GRACE_PERIOD = "AFTER_TERMINATION_GRACE_PERIOD", "After its termination grace period."
    IMMEDIATELY = "IMMEDIATELY", "At the check that finds it lost."
    NEVER = "NEVER", "Never: they keep their state until an operator resubmits or fails them."


class ServerState(Described):
    """State of a server. Each line explains the state and what changes it, mostly the liveness check."""

    CREATED = "CREATED", "Registered. Its first heartbeat makes it RUNNING; without one it becomes DISCONNECTED."
    RUNNING = "RUNNING", "It sends heartbeats and may get work. Without heartbeats it becomes DISCONNECTED."
    MAINTENANCE = "MAINTENANCE", "It sends heartbeats and takes no new work. It reports RUNNING again, or its end."
    ERROR = "ERROR", "It reported that it failed. The liveness check recovers its jobs, then makes it NOT_RUNNING."
    DISCONNECTED = (
        "DISCONNECTED",
        "Silent for longer than its timeout, or disconnected by an operator. The liveness check makes it NOT_RUNNING.",
    )
    TERMINATING = (
        "TERMINATING",
        "It finishes its jobs and shuts down. It reports its end, or the liveness check makes it NOT_RUNNING.",
    )
    TERMINATED_GRACEFULLY = (
        "TERMINATED_GRACEFULLY",
        "Ended with all of its jobs finished. The liveness check makes it NOT_RUNNING.",
    )
    TERMINATED_FORCED = (
        "TERMINATED_FORCED",
        "Ended with unfinished jobs. The liveness check recovers them, then makes it NOT_RUNNING.",
    )
    NOT_RUNNING = "NOT_RUNNING", "Gone, and it holds no job. The next liveness check makes it INACTIVE."
    INACTIVE = "INACTIVE", "Gone for at least one liveness check. Final; retention deletes it."


class Subject(Described):
    """Type of the subject of an event."""

    SERVER = "server", "A server, by its id."
    JOB = "job", "A job, by its id."
    EXECUTION = "execution", "An execution, by its id."
    TRIGGER = "trigger", "A trigger, by its id."
    ATTEMPTS = "attempts", "All stale attempts, of any owner."
    TOKEN = "token", "An API token, by its id."
    LIMIT = "limit", "A limit, by the pattern of its rule."
    BRAKE = "brake", "The brake on one type of server."
    HOLD = "hold", "A hold of work, by its id."
    INCIDENT = "incident", "An incident of an alert rule, by its id."
    INSTANCE = "instance", "The whole control plane."


S, C, OP = Mover.SERVER, Mover.LIVENESS, Mover.OPERATOR
_ = ServerState

TRANSITIONS: dict[ServerState, dict[ServerState, set[Mover]]] = {
    _.CREATED: {_.RUNNING: {S}, _.TERMINATING: {S}, _.ERROR: {S}, _.DISCONNECTED: {C, OP}},
    _.RUNNING: {_.MAINTENANCE: {S}, _.TERMINATING: {S}, _.ERROR: {S}, _.DISCONNECTED: {C, OP}},
    _.MAINTENANCE: {_.RUNNING: {S}, _.TERMINATING: {S}, _.ERROR: {S}, _.DISCONNECTED: {C, OP}},
    _.ERROR: {_.TERMINATING: {S}, _.NOT_RUNNING: {C}},
    _.DISCONNECTED: {_.TERMINATING: {S}, _.NOT_RUNNING: {S, C}},
    _.TERMINATING: {_.TERMINATED_GRACEFULLY: {S}, _.TERMINATED_FORCED: {S}, _.NOT_RUNNING: {C}},
    _.TERMINATED_GRACEFULLY: {_.NOT_RUNNING: {C}},
    _.TERMINATED_FORCED: {_.NOT_RUNNING: {C}},
    _.NOT_RUNNING: {_.INACTIVE: {C}},
    _.INACTIVE: {},
}

INITIAL = _.CREATED

REACTIVATABLE = {_.DISCONNECTED, _.NOT_RUNNING, _.INACTIVE}
"""States that a heartbeat changes to RUNNING, if the server registered under REACTIVATE_ON_HEARTBEAT. Otherwise no lost
server becomes alive again."""
ALIVE = {_.CREATED, _.RUNNING, _.MAINTENANCE}
"""States in which heartbeats are expected. The server leaves them itself, or the liveness check disconnects it."""
STOPPED = {_.ERROR, _.TERMINATED_GRACEFULLY, _.TERMINATED_FORCED}
"""States in which a server has stopped the code of its jobs. The liveness check changes them next."""
LOST = {_.DISCONNECTED, _.ERROR}
"""States that open an incident: the server fell silent, was disconnected or failed. The liveness check changes them."""
REVERSIBLE = {_.RUNNING, _.MAINTENANCE}
"""States between which a server may change in both directions. The liveness check disconnects it if it is silent."""
TERMINATED = {_.TERMINATED_GRACEFULLY, _.TERMINATED_FORCED}
"""Final states that a server reports itself. The liveness check changes them to NOT_RUNNING."""
RETIRED = {_.NOT_RUNNING, _.INACTIVE}
"""States of a server that is gone and holds no attempt. The liveness check changes NOT_RUNNING to INACTIVE."""
ENDED = RETIRED | {_.TERMINATED_GRACEFULLY}
"""States of an end that needs no attention. The liveness check changes them until the server is INACTIVE."""
TROUBLED = set(_) - ALIVE - ENDED
"""States of a server that is lost, or is ending but not gracefully. The liveness check changes them."""
TO_RECOVER = set(_) - ALIVE - RETIRED
"""States in which the attempts of a server are recovered. The liveness check makes it NOT_RUNNING when none is left."""
ENDS = (_.TERMINATED_FORCED, _.ERROR, _.NOT_RUNNING)
"""States for a server whose machine reports its end. The first legal transition is used."""
MAY_HEARTBEAT = set(_) - TERMINATED - RETIRED - {_.DISCONNECTED}
"""States in which heartbeats are accepted. Otherwise they are refused, unless the server is reactivated."""


def is_legal_transition(from_: ServerState, to: ServerState, mover: Mover, *, reactivates: bool = False) -> bool:
    """Return True if `mover` may change a server from one state to the other."""
    if reactivates and mover == S and from_ in REACTIVATABLE and to == ServerState.RUNNING:
        return True
    return mover in TRANSITIONS[from_].get(to, set())


def server_reported_states() -> set[ServerState]:
    """Return the states that a server may report in a heartbeat. Retired servers send none."""
    return {to for moves in TRANSITIONS.values() for to, movers in moves.items() if S in movers} - RETIRED


def state_after_end(state: ServerState) -> ServerState:
    """Return the next state of a server in `state` when its machine reports its end."""
    return next((to for to in ENDS if S in TRANSITIONS[state].get(to, set())), state)


def reactivation_transitions() -> list[tuple[str, str]]:
    """Return every (from, to) that is legal only under REACTIVATE_ON_HEARTBEAT."""
    return [(from_.value, ServerState.RUNNING.value) for from_ in sorted(REACTIVATABLE)]


def legal_transitions() -> list[tuple[str, str]]:
    """Return every legal (from, to), for the triggers of the database."""
    return [(from_.value, to.value) for from_, moves in TRANSITIONS.items() for to in moves]
