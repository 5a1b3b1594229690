from django.urls import path

from liveness.api import views

urlpatterns = [
    path("servers/<uuid:server>", views.ServerView.as_view()),
    path("servers/<uuid:server>/events", views.ServerEventsView.as_view()),
    path("servers/<uuid:server>/cordon", views.CordonView.as_view()),
    path("servers/<uuid:server>/uncordon", views.UncordonView.as_view()),
    path("servers/<uuid:server>/drain", views.DrainView.as_view()),
    path("servers/<uuid:server>/undrain", views.UndrainView.as_view()),
    path("servers/<uuid:server>/disconnect", views.DisconnectView.as_view()),
    path("events", views.EventsView.as_view()),
    path("maintenance/enter", views.EnterMaintenanceView.as_view()),
    path("maintenance/exit", views.ExitMaintenanceView.as_view()),
    path("brake/release", views.ReleaseBrakeView.as_view()),
]
