"""Calls that bring a token pass by the middleware that is there for browsers, which takes longer than the calls."""

from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.core.handlers.wsgi import WSGIHandler
from django.http import HttpRequest, HttpResponse

FOR_BROWSERS = {
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "controlplane.console.sign_in.Sessions",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
}
CALLS = "/api/v1/"


def brings_token(request: HttpRequest) -> bool:
    """Whether it is a call that no session is asked for; see liveness.api.authentication.Bearer."""
    return request.path_info.startswith(CALLS) and request.META.get("HTTP_AUTHORIZATION", "")[:7].lower() == "bearer "


class LeanCalls:
    """A mixin of a handler of Django's: what else is in MIDDLEWARE, all go through."""

    _middleware_chain: Callable[[HttpRequest], HttpResponse]

    def load_middleware(self, *args: Any, **options: Any) -> None:
        load: Callable[..., None] = super().load_middleware  # type: ignore[misc]
        everything = settings.MIDDLEWARE
        settings.MIDDLEWARE = [name for name in everything if name not in FOR_BROWSERS]
        try:
            load(*args, **options)
        finally:
            settings.MIDDLEWARE = everything
        for_calls = self._middleware_chain
        load(*args, **options)
        for_all = self._middleware_chain

        def answer(request: HttpRequest) -> HttpResponse:
            return for_calls(request) if brings_token(request) else for_all(request)

        self._middleware_chain = answer


class LeanHandler(LeanCalls, WSGIHandler):
    """Django as we serve it."""
