"""What there is to view, and the permission that each takes. Attempts, logs and superseded reports are a job's."""

VIEWS = {
    "server": "liveness.view_server",
    "job": "jobs.view_workerjob",
    "execution": "jobs.view_execution",
    "trigger": "jobs.view_trigger",
}
