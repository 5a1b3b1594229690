from django.urls import path

from liveness.api import views

urlpatterns = [
    path("servers/<uuid:server>", views.ServerView.as_view()),
    path("servers/<uuid:server>/events", views.ServerEvents.as_view()),
]
