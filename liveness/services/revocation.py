"""Revoke API tokens, and end the servers that registered with them."""

from collections.abc import Collection

from django.db.models import F

from controlplane.core.model_fields import ClockTimestamp
from controlplane.core.transactions import retried_atomic
from liveness import states
from liveness.models import ApiToken, Server
from liveness.services import transitions
from liveness.services.action_events import record_action
from liveness.services.tokens import token_subject
from liveness.states import Mover, ServerState


def revoke_tokens(prefix: str, by: str, note: str = "", *, with_servers: bool = False) -> tuple[int, int]:
    """Revoke the API tokens that begin with `prefix`, from the next request on. Return how many.

    With `with_servers`, also disconnect the servers that registered with them or with earlier revoked tokens of this
    prefix. Return the number of these servers as second value.
    """
    revoked = revoke_valid_tokens(prefix, by, note)
    # This runs after the commit above: from then on no new server can register with the tokens.
    return len(revoked), end_servers(prefix, by, note, revoked) if with_servers else 0


@retried_atomic
def revoke_valid_tokens(prefix: str, by: str, note: str) -> list[ApiToken]:
    valid = ApiToken.objects.filter(prefix__startswith=prefix, revoked_at=None)
    revoked = list(valid.select_for_update(no_key=True).order_by("pk"))
    ApiToken.objects.filter(pk__in=[token.pk for token in revoked]).update(revoked_at=ClockTimestamp())
    for token in revoked:
        record_action("revoke_token", by, note, token_subject(token))
    return revoked


@retried_atomic
def end_servers(prefix: str, by: str, note: str, noted: Collection[ApiToken]) -> int:
    """Revoke the server tokens of all servers that registered with revoked tokens of this prefix. Return how many.

    Alive servers become DISCONNECTED. Their attempts are recovered when their code must have stopped. The brake does
    not hold them. Write an event for each token except those in `noted`, which have one.
    """
    registered = Server.objects.filter(token__prefix__startswith=prefix, token__revoked_at__isnull=False)
    servers = registered.select_related("token")
    ending = servers.exclude(state__in=states.RETIRED).select_for_update(no_key=True, of=("self",)).order_by("pk")
    ended = list(ending)
    Server.objects.filter(pk__in=[server.pk for server in ended]).update(token_version=F("token_version") + 1)
    for server in ended:
        if server.state in states.ALIVE:
            reason = "the API token of its registration was revoked"
            transitions.change_state(server, ServerState.DISCONNECTED, Mover.OPERATOR, actor=by, reason=reason)
    for token in {server.token for server in ended} - {*noted}:
        record_action("end_servers", by, note, token_subject(token))
    return len(ended)
