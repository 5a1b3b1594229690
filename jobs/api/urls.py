from django.urls import path

from jobs.api import logs, recovery, views

urlpatterns = [
    path("servers", views.Registration.as_view()),
    path("servers/<uuid:server>/heartbeat", views.Heartbeat.as_view()),
    path("servers/<uuid:server>/claims", views.Claims.as_view()),
    path("servers/<uuid:server>/reports", views.Reports.as_view()),
    path("recovery/stale", recovery.Stale.as_view()),
    path("recovery/requeue-stale-claimed", recovery.RequeueStaleClaimed.as_view()),
    path("recovery/fail-stale-running", recovery.FailStaleRunning.as_view()),
    path("jobs", views.Jobs.as_view()),
    path("jobs/<uuid:job>", views.Job.as_view()),
    path("jobs/<uuid:job>/logs", logs.JobLogs.as_view()),
    path("jobs/<uuid:job>/placement", views.Placement.as_view()),
    path("jobs/<uuid:job>/cancel", views.Cancel.as_view()),
    path("jobs/<uuid:job>/resubmit", views.Resubmit.as_view()),
    path("jobs/<uuid:job>/fail", views.Fail.as_view()),
]
