"""Move a row to a state by legal transitions."""

from liveness import states
from liveness.models import Server
from liveness.states import ServerState


def way_to(table, start, goal):
    """Return the shortest legal path from one state to another."""
    ways = [[start]]
    for way in ways:
        if way[-1] == goal:
            return way
        ways += [[*way, onward] for onward in sorted(table[way[-1]]) if onward not in way]
    raise AssertionError(f"no way to {goal}")


def put(server, state):
    """Move a server to a state by legal transitions."""
    for onward in way_to(states.TRANSITIONS, ServerState(server.state), state)[1:]:
        Server.objects.filter(pk=server.pk).update(state=onward)
    server.refresh_from_db()
    return server
