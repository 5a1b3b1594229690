"""Permissions to view each type of object. The permission for jobs includes attempts, logs and superseded reports."""

VIEWS = {
    "server": "liveness.view_server",
    "job": "jobs.view_workerjob",
    "execution": "jobs.view_execution",
    "trigger": "jobs.view_trigger",
}
