"""Charts of a server's page, with their period."""

from collections.abc import Iterable, Sequence
from typing import Any

from django.urls import reverse

from controlplane.console.charts.plots import build_ticks
from controlplane.console.charts.server import draw_beats, draw_loads, draw_work, tabulate
from controlplane.console.selectors.chart_period import WORDS, ChartPeriod
from controlplane.console.selectors.periods import format_field
from jobs.selectors.server_history import ServerHistory
from jobs.sql.rows.server_history import ServerStep
from liveness import states
from liveness.models import ServerEvent
from liveness.selectors.servers import TimedServer
from liveness.states import ServerState, ServerType


def present_server_charts(
    server: TimedServer,
    chosen: ChartPeriod,
    steps: Sequence[ServerStep],
    events: Iterable[ServerEvent],
    *,
    sees_jobs: bool,
) -> dict[str, Any]:
    """Return the charts of a server.

    The charts of its work are left out if it is not a worker, or if the user may not view jobs.
    """
    period = chosen.period
    history = ServerHistory(period, server.now, count_silence(server, chosen, steps))
    losses = [event.at for event in events if not event.action and event.to_state == ServerState.DISCONNECTED]
    shows_work = sees_jobs and server.type == ServerType.WORKER
    loads = draw_loads(history)
    return {
        "list": [
            *(draw_work(history, server.max_concurrent) if shows_work else ()),
            draw_beats(history, server.heartbeat_interval, losses),
            *loads,
        ],
        "shows_work": shows_work,
        "shows_loads": bool(loads),
        "title": chosen.words,
        "windows": [(name, words, f"?window={name}", name == chosen.window) for name, words in WORDS.items()],
        "beside": chosen.links(server.now),
        "is_range": not chosen.window,
        "since": format_field(period.since),
        "until": format_field(period.until),
        "axis": build_ticks(period.since, period.seconds),
        "start": period.since.isoformat(),
        "step": period.step,
        "range": reverse("instance:server", args=[server.pk]),
        "is_of_server": True,
        "jobs": f"{reverse('instance:jobs')}?server={server.pk}" if shows_work else "",
        "rows": tabulate(history),
    }


def count_silence(server: TimedServer, chosen: ChartPeriod, steps: Sequence[ServerStep]) -> list[ServerStep]:
    """Return the steps with the time since the last heartbeat in the step of now, if more heartbeats are expected."""
    place = int((server.now - chosen.period.since).total_seconds() // chosen.period.step)
    if server.last_heartbeat_at is None or server.state not in states.MAY_HEARTBEAT or not 0 <= place < len(steps):
        return list(steps)
    silence = (server.now - server.last_heartbeat_at).total_seconds()
    longest = max(silence, steps[place].longest_gap or 0)
    return [*steps[:place], steps[place]._replace(longest_gap=longest), *steps[place + 1 :]]
