"""What can be refused; each class says what happened, in words its caller can act on."""

from controlplane.core.problems import Problem


class TokenMissing(Problem):
    """Send `Authorization: Bearer TOKEN`; `manage.py create_token` makes one."""

    status = 401
    code = "token_missing"


class TokenRefused(Problem):
    """This token is not known."""

    status = 401
    code = "token_unknown"


class TokenExpired(TokenRefused):
    """This token has expired."""

    code = "token_expired"


class TokenRevoked(TokenRefused):
    """This token was revoked."""

    code = "token_revoked"


class WrongRole(Problem):
    """This call needs a token of another role."""

    status = 403
    code = "wrong_role"


class WrongNamespace(Problem):
    """Whoever calls does not reach this namespace."""

    status = 403
    code = "wrong_namespace"


class TokenBound(Problem):
    """This token is bound: it may not register a server like this one."""

    status = 403
    code = "token_bound"


class TooManyServers(Problem):
    """This token already has as many servers as it may have."""

    status = 429
    code = "too_many_servers"


class NoSuchCluster(Problem):
    """No server of this cluster has ever registered."""

    status = 404
    code = "cluster_unknown"


class NotYourServer(Problem):
    """A server token is valid for calls about its own server only; this one is about another."""

    status = 403
    code = "not_your_server"


class ServerUnknown(Problem):
    """This server is not known, or no longer: register again with a new instance id."""

    status = 410
    code = "server_unknown"


class ServerNotRunning(Problem):
    """This server was declared dead and its jobs were given to others: kill them and exit. It never comes back."""

    code = "server_not_running"


class ServerDisconnected(Problem):
    """This server was disconnected, for silence or by an operator: claim no more, report TERMINATING, finish, exit."""

    code = "server_disconnected"


class IllegalTransition(Problem):
    """A server cannot go from its state to the one that was reported."""

    code = "illegal_transition"


class NoSuchServer(Problem):
    """No server has this id."""

    status = 404
    code = "not_found"


class ServerNotAlive(Problem):
    """This server is not alive: it gets no work anyway."""

    code = "server_not_alive"


class AlreadyCordoned(Problem):
    """This server is already cordoned by an operator; uncordon it to give it work again."""

    code = "already_cordoned"


class NotCordoned(Problem):
    """This server is not cordoned."""

    code = "not_cordoned"


class ServerDraining(Problem):
    """This server is being drained; undrain it first."""

    code = "server_draining"


class NotDraining(Problem):
    """This server is not being drained."""

    code = "not_draining"


class AlreadyInMaintenance(Problem):
    """The control plane is already in maintenance; end the maintenance to give out work again."""

    code = "already_in_maintenance"


class NotInMaintenance(Problem):
    """The control plane is not in maintenance."""

    code = "not_in_maintenance"


class BrakeNotEngaged(Problem):
    """The brake holds no servers now: there is nothing to release."""

    code = "brake_not_engaged"


class ChangedSinceSeen(Problem):
    """This server has changed since you looked at it: look again before you act."""

    code = "changed_since_seen"
