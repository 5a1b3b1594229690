from django.urls import path

from jobs.api import views

urlpatterns = [
    path("servers", views.Registration.as_view()),
    path("servers/<uuid:server>/heartbeat", views.Heartbeat.as_view()),
    path("servers/<uuid:server>/claims", views.Claims.as_view()),
    path("servers/<uuid:server>/reports", views.Reports.as_view()),
    path("jobs", views.Jobs.as_view()),
    path("jobs/<uuid:job>", views.Job.as_view()),
]
