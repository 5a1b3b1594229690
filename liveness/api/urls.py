from django.urls import path

from liveness.api import views

urlpatterns = [
    path("servers/<uuid:server>", views.ServerView.as_view()),
    path("servers/<uuid:server>/events", views.ServerEvents.as_view()),
    path("servers/<uuid:server>/cordon", views.Cordon.as_view()),
    path("servers/<uuid:server>/uncordon", views.Uncordon.as_view()),
    path("servers/<uuid:server>/drain", views.Drain.as_view()),
    path("servers/<uuid:server>/undrain", views.Undrain.as_view()),
    path("servers/<uuid:server>/disconnect", views.Disconnect.as_view()),
    path("events", views.Events.as_view()),
    path("maintenance/enter", views.EnterMaintenance.as_view()),
    path("maintenance/exit", views.ExitMaintenance.as_view()),
    path("brake/release", views.ReleaseBrake.as_view()),
]
