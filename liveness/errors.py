"""Errors of calls about servers and tokens. The docstring of a class is the error message that the caller gets."""

from controlplane.core.problems import Problem


class TokenMissing(Problem):
    """The call has no token. Send `Authorization: Bearer TOKEN`; the command `create_token` makes a token."""

    status = 401
    code = "token_missing"


class TokenRefused(Problem):
    """The token is unknown. Check that it is complete, and that it belongs to this control plane."""

    status = 401
    code = "token_unknown"


class TokenExpired(TokenRefused):
    """The token has expired. Ask an operator for a new one."""

    code = "token_expired"


class TokenRevoked(TokenRefused):
    """The token was revoked. Ask an operator for a new one."""

    code = "token_revoked"


class TokenCreatedBefore(Problem):
    """The form was sent before: its token exists. If you did not see its text, revoke it and open the form again."""

    code = "token_created_before"


class WrongRole(Problem):
    """The call needs a token of another role."""

    status = 403
    code = "wrong_role"


class NotConfigurable(Problem):
    """The server claims no jobs, so its concurrency and tags cannot be changed here."""

    code = "not_configurable"


class WrongNamespace(Problem):
    """The caller has no access to the namespace."""

    status = 403
    code = "wrong_namespace"


class TokenBound(Problem):
    """The token may not register a server of this type, cluster or tags."""

    status = 403
    code = "token_bound"


class TooManyServers(Problem):
    """The token already has as many servers as it may have. One of them must end before another can register."""

    status = 429
    code = "too_many_servers"


class NoSuchCluster(Problem):
    """The cluster is unknown: it has no server. Check the name."""

    status = 404
    code = "cluster_unknown"


class NotYourServer(Problem):
    """A server token is valid only for calls about its own server. Use the token that the registration returned."""

    status = 403
    code = "not_your_server"


class ServerUnknown(Problem):
    """The server is unknown or was deleted. Register again with a new instance id."""

    status = 410
    code = "server_unknown"


class ServerNotRunning(Problem):
    """The server was declared lost and its jobs were recovered. Kill them and exit; it is never RUNNING again."""

    code = "server_not_running"


class HeartbeatAfterBoot(Problem):
    """The server sent a heartbeat after the reporting machine had booted, so it may still run on another machine."""

    code = "heartbeat_after_boot"


class ServerDisconnected(Problem):
    """The server was disconnected, for silence or by an operator. Claim no jobs, report TERMINATING, finish, exit."""

    code = "server_disconnected"


class IllegalTransition(Problem):
    """The server cannot change from its state to the reported one."""

    code = "illegal_transition"


class NoSuchServer(Problem):
    """The server does not exist."""

    status = 404
    code = "not_found"


class ServerNotAlive(Problem):
    """The server is not alive and therefore gets no work."""

    code = "server_not_alive"


class AlreadyCordoned(Problem):
    """The server is already cordoned by an operator. Uncordon it to give it work again."""

    code = "already_cordoned"


class NotCordoned(Problem):
    """The server is not cordoned."""

    code = "not_cordoned"


class ServerDraining(Problem):
    """The server is being drained. Undrain it first."""

    code = "server_draining"


class NotDraining(Problem):
    """The server is not being drained."""

    code = "not_draining"


class AlreadyInMaintenance(Problem):
    """The control plane is already in maintenance. Exit maintenance to give out work again."""

    code = "already_in_maintenance"


class NotInMaintenance(Problem):
    """The control plane is not in maintenance."""

    code = "not_in_maintenance"


class BrakeNotEngaged(Problem):
    """The brake holds no servers, so there is nothing to release."""

    code = "brake_not_engaged"


class ChangedSinceSeen(Problem):
    """The server has changed since the page was loaded. Reload the page before you act."""

    code = "changed_since_seen"
