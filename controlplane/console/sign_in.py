"""Sign-in to the pages: password attempts are limited in rate, and sessions are renewed while in use."""

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
from django.template.loader import render_to_string

from controlplane.core.addresses import client_address
from controlplane.core.problems import retry_headers
from liveness.services import sign_ins

log = structlog.get_logger()

SIGNED_IN_AT, RENEWED_AT = "signed_in_at", "renewed_at"
IS_SIGNED_IN = "controlplane.is_signed_in"
"""Key in `request.META`. It is set if the page read its session and found a signed-in user."""


class TooManyTries(Exception):
    """Another attempt is allowed in `seconds`."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the next try is allowed in {seconds:.0f} s")
        self.seconds = math.ceil(seconds)


class Throttled(ModelBackend):
    """Django's model backend with a limit of password attempts (services/sign_ins.py)."""

    def authenticate(  # type: ignore[override]
        self, request: HttpRequest | None, username: str | None = None, password: str | None = None, **kwargs: object
    ) -> AbstractBaseUser | None:
        """Check the password. Raise TooManyTries before the check if there were too many attempts."""
        if request is None or "REMOTE_ADDR" not in request.META:  # called by a shell or a command
            return super().authenticate(request, username, password, **kwargs)
        name, address = username or "", address_of(request)
        if seconds := sign_ins.count(name, address):
            log.warning("Sign-in refused: too many tries", address=address, again_in=math.ceil(seconds))
            raise TooManyTries(seconds)
        user = super().authenticate(request, username, password, **kwargs)
        if user is not None:
            sign_ins.forget(name, address)
        return user

    def get_all_permissions(self, user_obj: Any, obj: object = None) -> set[str]:
        """Return permissions of the user and of their groups, in one query instead of two."""
        if not user_obj.is_active or user_obj.is_anonymous or obj is not None:
            return set()
        if not hasattr(user_obj, "_perm_cache"):
            is_his = Q() if user_obj.is_superuser else Q(user=user_obj) | Q(group__user=user_obj)
            names = Permission.objects.filter(is_his).order_by().values_list("content_type__app_label", "codename")
            user_obj._perm_cache = {f"{app}.{name}" for app, name in names}
        return user_obj._perm_cache


def address_of(request: HttpRequest) -> str:
    """Return the address of the caller. X-Forwarded-For is trusted only behind a trusted proxy."""
    forwarded = request.META.get("HTTP_X_FORWARDED_FOR", "") if settings.BEHIND_TLS else ""
    return client_address(request.META.get("REMOTE_ADDR", ""), forwarded)


@receiver(user_logged_in)
def begin_session(request: HttpRequest, **_: object) -> None:
    request.session.update({SIGNED_IN_AT: time.time(), RENEWED_AT: time.time()})


class Sessions:
    """Middleware that renews sessions and limits sign-in attempts.

    A session lasts SESSION_COOKIE_AGE after its last use, and at most SESSION_LONGEST. Too many attempts get a 429.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        session, now = request.session, time.time()
        # Renew only a session that the page has loaded already, to avoid an extra query.
        if session.accessed and "_auth_user_id" in session:
            request.META[IS_SIGNED_IN] = True
            is_due = now - session.get(RENEWED_AT, 0) > settings.SESSION_COOKIE_AGE / 12
            if is_due and now - session.get(SIGNED_IN_AT, 0) < settings.SESSION_LONGEST:
                session[RENEWED_AT] = now
        return response

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        if not isinstance(error, TooManyTries):
            return None
        page = render_to_string("admin/too_many_tries.html", {"seconds": error.seconds}, request)
        return HttpResponse(page, status=429, headers=retry_headers(429, error.seconds))
