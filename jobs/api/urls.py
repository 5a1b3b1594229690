from django.urls import path

from jobs.api import executions, hints, instance, logs, recovery, servers, triggers, views, waiting

urlpatterns = [
    path("servers", servers.Servers.as_view()),
    path("servers/<uuid:server>/heartbeat", views.Heartbeat.as_view()),
    path("servers/<uuid:server>/claims", views.Claims.as_view()),
    path("servers/<uuid:server>/hints", hints.Hints.as_view()),
    path("servers/<uuid:server>/reports", views.Reports.as_view()),
    path("servers/<uuid:server>/tasks", views.Tasks.as_view()),
    path("instance", instance.Instance.as_view()),
    path("recovery/stale", recovery.Stale.as_view()),
    path("recovery/requeue-stale-claimed", recovery.RequeueStaleClaimed.as_view()),
    path("recovery/fail-stale-running", recovery.FailStaleRunning.as_view()),
    path("jobs", views.Jobs.as_view()),
    path("jobs/wait", waiting.JobsWait.as_view()),
    path("jobs/<uuid:job>", waiting.Job.as_view()),
    path("jobs/<uuid:job>/logs", logs.JobLogs.as_view()),
    path("jobs/<uuid:job>/placement", views.Placement.as_view()),
    path("jobs/<uuid:job>/cancel", views.Cancel.as_view()),
    path("jobs/<uuid:job>/resubmit", views.Resubmit.as_view()),
    path("jobs/<uuid:job>/fail", views.Fail.as_view()),
    path("executions", executions.Executions.as_view()),
    path("executions/<uuid:execution>", executions.Execution.as_view()),
    path("executions/<uuid:execution>/cancel", executions.Cancel.as_view()),
    path("executions/<uuid:execution>/rerun", executions.Rerun.as_view()),
    path("executions/<uuid:execution>/steps/_server/logs", executions.ServerLogs.as_view()),
    path("triggers", triggers.Triggers.as_view()),
    path("triggers/<uuid:trigger>", triggers.Trigger.as_view()),
    path("triggers/<uuid:trigger>/evaluate", triggers.Evaluate.as_view()),
    path("executions/<uuid:execution>/steps/<str:step>/logs", executions.StepLogs.as_view()),
]
