"""Staff who are signed in may call the API from their browser, with the session of the admin and its CSRF token.

Whoever may view all that the Instance pages show is a viewer, who may take every action there as well an operator. What
asks for one permission at a time are the pages: the API has roles, and a viewer reads everything.
"""

from functools import cache, cached_property
from typing import Any

from django.apps import apps
from django.conf import settings
from rest_framework.authentication import SessionAuthentication
from rest_framework.exceptions import PermissionDenied
from rest_framework.request import Request

from jobs.errors import CsrfFailed
from jobs.permissions import VIEWS
from liveness.api.authentication import Credential
from liveness.errors import WrongRole
from liveness.models import ApiToken, Role
from liveness.selectors.namespaces import namespace_of_new, namespaces_of_person
from liveness.services import tokens


@cache
def operator_permissions() -> frozenset[str]:
    """The permissions of all actions of the Instance pages."""
    return frozenset(
        f"{label}.{name}"
        for label in ("liveness", "jobs")
        for model in apps.get_app_config(label).get_models()
        for name, _ in model._meta.permissions
    )


class SessionCredential(Credential):
    """Of somebody who is signed in; he has no token of his own."""

    def __init__(self, user: Any) -> None:
        super().__init__("")
        self.user = user

    @cached_property
    def api_token(self) -> ApiToken:
        """What a token of his would be. Raises WrongRole."""
        return ApiToken(name=self.user.get_username(), role=self.role)

    @property
    def namespaces(self) -> frozenset[str] | None:
        return namespaces_of_person(self.user)

    @property
    def namespace(self) -> str:
        return namespace_of_new(self.namespaces)

    @property
    def submitter(self) -> ApiToken:
        return tokens.get_session_token(self.user.pk, self.user.get_username(), self.role)

    @cached_property
    def role(self) -> Role:
        if not self.user.has_perms(VIEWS.values()):
            raise WrongRole(f"This needs the permissions {', '.join(VIEWS.values())}.")
        return Role.OPERATOR if self.user.has_perms(operator_permissions()) else Role.VIEWER


class StaffSession(SessionAuthentication):
    """The session of a member of staff; of others it is none. What changes something needs the CSRF token."""

    def authenticate(self, request: Request) -> tuple[Any, SessionCredential] | None:
        user = getattr(request._request, "user", None)
        if user is None or not (user.is_active and getattr(user, "is_staff", False)):
            return None
        try:
            self.enforce_csrf(request)
        except PermissionDenied as refused:
            raise CsrfFailed(
                f"{refused.detail} Send the cookie {settings.CSRF_COOKIE_NAME} as the header X-CSRFToken."
            ) from None
        return user, SessionCredential(user)
