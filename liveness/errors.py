"""What can be refused; each class says what happened, in words its caller can act on."""

from controlplane.problems import Problem


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
    """A token of another role is needed for this."""

    status = 403
    code = "wrong_role"


class NotYourServer(Problem):
    """This is another server's call: a server token is good for its own server only."""

    status = 403
    code = "not_your_server"


class ServerUnknown(Problem):
    """This server is not known (any more): register anew with a new instance id."""

    status = 410
    code = "server_unknown"


class ServerNotRunning(Problem):
    """This server was found dead and its jobs are elsewhere: kill them and exit. It never comes back."""

    code = "server_not_running"


class ServerDisconnected(Problem):
    """This server was silent for too long: claim no more, say TERMINATING, finish, exit."""

    code = "server_disconnected"


class IllegalTransition(Problem):
    """A server in this state cannot go to that one."""

    code = "illegal_transition"
