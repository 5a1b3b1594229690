"""What can be refused; each class says what happened, in words its caller can act on."""

from controlplane.problems import Problem


class NotAWorker(Problem):
    """Only a server of type WORKER claims jobs."""

    code = "not_a_worker"


class HeartbeatStale(Problem):
    """The heartbeat of this worker is stale: it gets work again after the next one."""

    code = "heartbeat_stale"


class ServerCordoned(Problem):
    """This server is cordoned: it gets no new work."""

    code = "server_cordoned"


class Maintenance(Problem):
    """This server is in maintenance: it gets no new work."""

    code = "maintenance"


class NotRunningYet(Problem):
    """This server is not RUNNING: its heartbeat has to say so before it claims."""

    code = "server_not_running"


class KeyTaken(Problem):
    """This key was used before, for a job with other content."""

    code = "key_conflict"
