"""The Instance pages: what is there, what is held, what happened, and what can be done about it; `/admin/instance/`."""

from django.urls import URLPattern, path

from controlplane.console.actions import targets
from controlplane.console.actions.bulk_actions import action_page
from controlplane.console.actions.jobs import EXECUTION_ACTIONS, JOB_ACTIONS, QUARANTINE_ACTIONS
from controlplane.console.actions.servers import SERVER_ACTIONS
from controlplane.console.views import activity, executions, jobs, overview, recovery, servers
from controlplane.console.views.page import choose_poll


def action_paths() -> list[URLPattern]:
    """Each action of an operator has an address of its own."""
    return [
        path(f"{folder}/{name}/", action_page(kind, action), name=f"{folder}_{name}")
        for folder, kind, actions in (
            ("servers", targets.SERVERS, SERVER_ACTIONS),
            ("jobs", targets.JOBS, JOB_ACTIONS),
            ("executions", targets.EXECUTIONS, EXECUTION_ACTIONS),
            ("quarantine", targets.QUARANTINED, QUARANTINE_ACTIONS),
        )
        for name, action in actions.items()
    ]


app_name = "instance"
urlpatterns = [
    path("", overview.overview, name="overview"),
    path("poll/", choose_poll, name="poll"),
    path("servers/", servers.servers, name="servers"),
    path("servers/<uuid:server>/", servers.server, name="server"),
    path("jobs/", jobs.jobs, name="jobs"),
    path("jobs/<uuid:job>/", jobs.job, name="job"),
    path("jobs/<uuid:job>/logs/", jobs.job_logs, name="job_logs"),
    path("executions/", executions.executions, name="executions"),
    path("executions/<uuid:execution>/", executions.execution, name="execution"),
    path("triggers/", executions.triggers, name="triggers"),
    path("activity/", activity.activity, name="activity"),
    path("quarantine/", activity.quarantine, name="quarantine"),
    path("recovery/", recovery.stale, name="recovery"),
    path("recovery/<slug:name>/", recovery.by_hand, name="by_hand"),
    *action_paths(),
]
