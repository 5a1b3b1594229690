"""Reference for heartbeats: a plain Django REST Framework view that updates one row by its key."""

import os
from typing import Any

import dj_database_url
import django
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.db import connection
from django.urls import path

settings.configure(
    SECRET_KEY="reference",
    ALLOWED_HOSTS=["localhost", "127.0.0.1"],
    ROOT_URLCONF=__name__,
    INSTALLED_APPS=["rest_framework"],
    MIDDLEWARE=["django.middleware.common.CommonMiddleware"],  # it sets Content-Length
    DATABASES={"default": {**dj_database_url.parse(os.environ["DATABASE_URL"]), "OPTIONS": {"pool": {"max_size": 8}}}},
    REST_FRAMEWORK={
        "DEFAULT_AUTHENTICATION_CLASSES": [],
        "DEFAULT_PERMISSION_CLASSES": [],
        "UNAUTHENTICATED_USER": None,
        "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
        "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.JSONParser"],
    },
)
django.setup()

from rest_framework import serializers  # noqa: E402
from rest_framework.request import Request  # noqa: E402
from rest_framework.response import Response  # noqa: E402
from rest_framework.views import APIView  # noqa: E402


class HeartbeatSerializer(serializers.Serializer):
    state = serializers.CharField()


class Plain(APIView):
    def get(self, request: Request) -> Response:
        return Response({})

    def post(self, request: Request, server: Any) -> Response:
        serializer = HeartbeatSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        with connection.cursor() as cursor:
            cursor.execute("update bare_server set last_heartbeat_at = clock_timestamp() where id = %s", [server])
            assert cursor.rowcount == 1
        return Response({"state": serializer.validated_data["state"]})


urlpatterns = [path("", Plain.as_view()), path("<uuid:server>", Plain.as_view())]
application = get_wsgi_application()
