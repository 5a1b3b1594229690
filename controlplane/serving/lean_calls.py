"""Skip the middleware for browsers in calls with a token. It would take longer than the calls themselves."""

from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.core.handlers.wsgi import WSGIHandler
from django.http import HttpRequest, HttpResponse

from controlplane.core.bearer import read_bearer

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
    """Return True for a call that authenticates by token, so its session is not read."""
    return request.path_info.startswith(CALLS) and bool(read_bearer(request.META.get("HTTP_AUTHORIZATION", "")))


class LeanCalls:
    """Mixin for Django's request handlers. It keeps all other middleware for these calls."""

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
    """Django's handler, with a short middleware chain for calls with a token."""
