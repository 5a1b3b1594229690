"""Sign-in through an OpenID Connect provider, with mozilla-django-oidc (the extra `oidc`).

`controlplane.openid_settings` reads the configuration. The password form stays at /admin/login/?password=1,
so that administrators can sign in while the provider is down.
"""

from functools import lru_cache
from typing import Any

import jwt
import requests
import structlog
from django.contrib import admin
from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.models import Group, User
from django.core.exceptions import PermissionDenied, SuspiciousOperation
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import path
from django.utils.functional import lazy
from mozilla_django_oidc.auth import OIDCAuthenticationBackend
from mozilla_django_oidc.utils import import_from_settings
from mozilla_django_oidc.views import OIDCAuthenticationCallbackView, OIDCAuthenticationRequestView

from controlplane.console.sign_in import Throttled

log = structlog.get_logger()

DISCOVERED = {
    "OIDC_OP_AUTHORIZATION_ENDPOINT": "authorization_endpoint",
    "OIDC_OP_TOKEN_ENDPOINT": "token_endpoint",
    "OIDC_OP_USER_ENDPOINT": "userinfo_endpoint",
    "OIDC_OP_JWKS_ENDPOINT": "jwks_uri",
}
"""Settings of mozilla-django-oidc, and the keys of their values in the provider's discovery document."""


class ProviderProblem(Exception):
    """The discovery document of the provider is not usable."""


FAILURES = (ProviderProblem, requests.RequestException, jwt.PyJWTError, KeyError, ValueError)
"""Errors of a provider that does not answer, or whose answer breaks the standard."""


@lru_cache(maxsize=1)
def discover(issuer: str) -> dict[str, Any]:
    """Return the discovery document of the provider. It is cached once it was read. Raise one of FAILURES."""
    address = f"{issuer.rstrip('/')}/.well-known/openid-configuration"
    response = requests.get(address, timeout=import_from_settings("OIDC_TIMEOUT"))
    response.raise_for_status()
    document: dict[str, Any] = response.json()
    if missing := [key for key in ("issuer", *DISCOVERED.values()) if not isinstance(document.get(key), str)]:
        raise ProviderProblem(f"{address} has no {', '.join(missing)}.")
    if document["issuer"].rstrip("/") != issuer.rstrip("/"):
        raise ProviderProblem(f"{address} is of {document['issuer']!r}, but OIDC_ISSUER is {issuer!r}.")
    return document


def find_endpoint(key: str) -> str:
    return str(discover(import_from_settings("OIDC_ISSUER"))[key])


class Discovered:
    """Mixin that reads the provider's addresses from its discovery document on first use."""

    @staticmethod
    def get_settings(name: str, *default: Any) -> Any:
        # Lazy, because the backend is also created for each page of a signed-in user.
        return (
            lazy(find_endpoint, str)(DISCOVERED[name]) if name in DISCOVERED else import_from_settings(name, *default)
        )


class OpenIdUsers(Discovered, OIDCAuthenticationBackend):
    """Users by their verified e-mail address, in the groups that the provider names.

    Groups are set at each sign-in. A user without a group here is refused.
    """

    get_user = ModelBackend.get_user  # refuses inactive users
    get_all_permissions = Throttled.get_all_permissions  # one query

    def authenticate(self, request: HttpRequest | None, **credentials: Any) -> User | None:
        """Return the user, or None for a sign-in with a password. Raise PermissionDenied or one of FAILURES."""
        if "nonce" not in credentials:
            return None
        user: User | None = super().authenticate(request, **credentials)
        if user is None:
            raise PermissionDenied  # instead of None, so that no other backend is asked
        return user

    def verify_token(self, token: str, **options: Any) -> dict[str, Any]:
        """Return the claims of a signed token. For an ID token check also its issuer and its audience."""
        claims: dict[str, Any] = super().verify_token(token, **options)
        if "nonce" in options:
            issuer = discover(import_from_settings("OIDC_ISSUER"))["issuer"]
            audience = claims.get("aud")
            if claims.get("iss") != issuer:
                raise SuspiciousOperation(f"The ID token is of the issuer {claims.get('iss')!r}.")
            if self.OIDC_RP_CLIENT_ID not in (audience if isinstance(audience, list) else [audience]):
                raise SuspiciousOperation(f"The ID token is for {audience!r}, and not for OIDC_CLIENT_ID.")
        return claims

    def get_userinfo(self, access_token: str, id_token: str, payload: dict[str, Any]) -> dict[str, Any]:
        claims: dict[str, Any] = super().get_userinfo(access_token, id_token, payload)
        if claims.get("sub") != payload.get("sub"):
            raise SuspiciousOperation("The ID token and the user information are of different users.")
        return claims

    def find_groups(self, claims: dict[str, Any]) -> QuerySet[Group]:
        """Return our groups for the groups of the provider: by OIDC_GROUPS if it is set, otherwise by the same name."""
        named = claims.get(import_from_settings("OIDC_GROUPS_CLAIM")) or []
        theirs = [named] if isinstance(named, str) else named
        mapping = import_from_settings("OIDC_GROUPS")
        ours = theirs if mapping is None else [group for name in theirs for group in mapping.get(name, ())]
        found = Group.objects.filter(name__in=ours)
        if mapping is not None and (unknown := set(ours) - set(found.values_list("name", flat=True))):
            log.warning("OIDC_GROUPS names groups that do not exist", groups=sorted(unknown))
        return found

    def verify_claims(self, claims: dict[str, Any]) -> bool:
        return claims.get("email_verified") is True and bool(claims.get("email")) and self.find_groups(claims).exists()

    def filter_users_by_claims(self, claims: dict[str, Any]) -> QuerySet[User]:
        return User.objects.filter(username=self.get_username(claims))

    def get_username(self, claims: dict[str, Any]) -> str:
        return str(claims["email"]).lower()

    def create_user(self, claims: dict[str, Any]) -> User:
        return self.update_user(super().create_user(claims), claims)

    def update_user(self, user: User, claims: dict[str, Any]) -> User:
        user.groups.set(self.find_groups(claims))
        if not user.is_staff:
            user.is_staff = True  # staff, because the pages are for staff only
            user.save(update_fields=["is_staff"])
        return user


class OpenIdSignIn(Discovered, OIDCAuthenticationRequestView):
    """Redirect to the provider, or show the password form with ?password=1."""

    http_method_names = ("get", "post")

    def get(self, request: HttpRequest) -> HttpResponse:
        if "password" in request.GET:
            return admin.site.login(request)
        try:
            return super().get(request)
        except FAILURES as error:
            return explain_failure(request, error)

    def post(self, request: HttpRequest) -> HttpResponse:
        return admin.site.login(request)


class Callback(Discovered, OIDCAuthenticationCallbackView):
    """Sign in the user who returns from the provider."""

    def get(self, request: HttpRequest) -> HttpResponse:
        try:
            return super().get(request)
        except (*FAILURES, SuspiciousOperation) as error:
            return explain_failure(request, error)

    def login_failure(self) -> HttpResponse:
        log.warning("Sign-in by OpenID Connect refused", error=self.request.GET.get("error"))
        return render(self.request, "admin/openid_failed.html", status=403)


def explain_failure(request: HttpRequest, error: Exception) -> HttpResponse:
    """Log an error of the provider, and return a page that offers the password form."""
    issuer = import_from_settings("OIDC_ISSUER")
    log.error("Sign-in by OpenID Connect failed", error=f"{type(error).__name__}: {error}", issuer=issuer)
    return render(request, "admin/openid_failed.html", {"is_provider_down": True}, status=502)


urlpatterns = [
    path("oidc/callback/", Callback.as_view(), name="oidc_authentication_callback"),
    path("admin/login/", OpenIdSignIn.as_view()),
]
