"""Signing in to the pages: passwords are tried at a limited rate, and sessions are renewed while they are used."""

import math
import time
from collections.abc import Callable
from typing import Any

import structlog
from django.conf import settings
from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.models import Permission
from django.contrib.auth.signals import user_logged_in
from django.db.models import Q
from django.dispatch import receiver
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from liveness.services import sign_ins

log = structlog.get_logger()

SIGNED_IN_AT, RENEWED_AT = "signed_in_at", "renewed_at"
IS_SIGNED_IN = "controlplane.is_signed_in"
"""In the environ of a request whose page has looked at its session, and found somebody signed in."""


class TooManyTries(Exception):
    """Another try is allowed in `seconds`."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the next try is allowed in {seconds:.0f} s")
        self.seconds = math.ceil(seconds)


class Throttled(ModelBackend):
    """Users and passwords, and no more tries than services/sign_ins.py allows."""

    def authenticate(  # type: ignore[override]
        self, request: HttpRequest | None, username: str | None = None, password: str | None = None, **kwargs: Any
    ) -> AbstractBaseUser | None:
        """Raises TooManyTries, before the password is looked at."""
        if request is None or "REMOTE_ADDR" not in request.META:  # not from anywhere: a shell, a command
            return super().authenticate(request, username, password, **kwargs)
        name, address = username or "", address_of(request)
        if seconds := sign_ins.count(name, address):
            log.warning("Sign-in refused: too many tries", address=address, again_in=math.ceil(seconds))
            raise TooManyTries(seconds)
        user = super().authenticate(request, username, password, **kwargs)
        if user is not None:
            sign_ins.forget(name, address)
        return user

    def get_all_permissions(self, user_obj: Any, obj: Any = None) -> set[str]:
        """His own and those of his groups, in one query: each page asks for them."""
        if not user_obj.is_active or user_obj.is_anonymous or obj is not None:
            return set()
        if not hasattr(user_obj, "_perm_cache"):
            is_his = Q() if user_obj.is_superuser else Q(user=user_obj) | Q(group__user=user_obj)
            names = Permission.objects.filter(is_his).order_by().values_list("content_type__app_label", "codename")
            user_obj._perm_cache = {f"{app}.{name}" for app, name in names}
        return user_obj._perm_cache


def address_of(request: HttpRequest) -> str:
    """Who calls; behind a proxy the last whom X-Forwarded-For names, for the caller may have made up the others."""
    forwarded = request.META.get("HTTP_X_FORWARDED_FOR", "") if settings.BEHIND_TLS else ""
    return forwarded.rpartition(",")[2].strip() or request.META.get("REMOTE_ADDR", "")


@receiver(user_logged_in)
def begin_session(request: HttpRequest, **_: Any) -> None:
    request.session.update({SIGNED_IN_AT: time.time(), RENEWED_AT: time.time()})


class Sessions:
    """Middleware: a session lasts as long as SESSION_COOKIE_AGE says from its last use on, and for SESSION_LONGEST at
    most; a try to sign in that comes too soon is a 429."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        session, now = request.session, time.time()
        # The session is not looked up for this: only a page that did so, for its reader, renews it.
        if session.accessed and "_auth_user_id" in session:
            request.META[IS_SIGNED_IN] = True
            is_due = now - session.get(RENEWED_AT, 0) > settings.SESSION_COOKIE_AGE / 12
            if is_due and now - session.get(SIGNED_IN_AT, 0) < settings.SESSION_LONGEST:
                session[RENEWED_AT] = now
        return response

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        if not isinstance(error, TooManyTries):
            return None
        response = render(request, "admin/too_many_tries.html", {"seconds": error.seconds}, status=429)
        response.headers["Retry-After"] = str(error.seconds)
        return response
