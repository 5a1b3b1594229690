"""Changes of a worker's slots and tags by an operator. Its agent takes them over with the response to its heartbeat.

They last as long as the process of the agent. An agent that registers again in the same process sends them itself.
"""

from collections.abc import Collection
from uuid import UUID

from controlplane.core.transactions import retried_atomic
from jobs.services import hints
from liveness.errors import NotConfigurable, TokenBound
from liveness.models import ApiToken, Server
from liveness.services import operations
from liveness.states import ServerType


@retried_atomic
def configure_worker(
    server: UUID,
    by: str,
    note: str = "",
    *,
    max_concurrent: int | None = None,
    given_tags: Collection[str] | None = None,
) -> None:
    """Change the slots of a worker, or the tags that were given by hand. The tags of its agent stay.

    None leaves a value as it is. Values that are the same change nothing. Raises NoSuchServer, NotConfigurable, and
    TokenBound if the token of the worker may not have the tags.
    """
    row = operations.lock_server(server, ensure_may_configure)
    wanted: dict[str, object] = {}
    if max_concurrent is not None:
        wanted["max_concurrent"] = max_concurrent
    if given_tags is not None:
        own = {*row.tags} - {*list_given_tags(row)}
        wanted |= {"given_tags": sorted({*given_tags} - own), "tags": sorted({*given_tags} | own)}
        refuse_other_tags(row, {*given_tags} | own)
    changed = {name: value for name, value in wanted.items() if getattr(row, name) != value}
    shown = {name: {"old": getattr(row, name), "new": value} for name, value in changed.items() if name != "given_tags"}
    if not shown:
        return
    Server.objects.filter(pk=server).update(**changed)
    operations.note_action(row, "configure_server", by, note, changes=shown)
    if "tags" in shown:
        hints.announce_changed_offer(server)
    hints.announce_work()


def ensure_may_configure(server: Server) -> None:
    """Raise NotConfigurable for a server that claims no jobs, and ServerNotAlive."""
    if server.type != ServerType.WORKER or any(tag.startswith("celery:") for tag in server.tags):
        raise NotConfigurable(state=server.state)
    operations.ensure_is_alive(server)


def list_given_tags(server: Server) -> list[str]:
    """Return the tags that may be changed. An agent that does not name them has no others."""
    return server.tags if server.given_tags is None else server.given_tags


def refuse_other_tags(server: Server, tags: set[str]) -> None:
    """Raise TokenBound if the token of the server does not allow one of these tags."""
    allowed = ApiToken.objects.filter(pk=server.token_id).values_list("tags", flat=True).get()
    if allowed is not None and (others := sorted(tags - {*allowed})):
        raise TokenBound(f"The token of this worker allows the tags {', '.join(allowed)}, not {', '.join(others)}.")
