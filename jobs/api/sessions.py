"""Browser sessions as API callers: signed-in staff call the API with the admin's session and its CSRF token.

The API has roles, and no single permissions as the pages have. Staff with all view permissions of the Instance pages
are viewers; with the permissions of all actions they are operators.
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
from liveness.models import ALL_NAMESPACES, ApiToken, Role
from liveness.selectors.namespaces import namespace_of_new, namespaces_of_person
from liveness.services import tokens


@cache
def operator_permissions() -> frozenset[str]:
    """Return the permissions of all actions of the Instance pages, without those for namespaces."""
    return frozenset(
        f"{label}.{name}"
        for label in ("liveness", "jobs")
        for model in apps.get_app_config(label).get_models()
        for name, _ in model._meta.permissions
        if name != ALL_NAMESPACES
    )


class SessionCredential(Credential):
    """Credential of a signed-in user, who has no token."""

    def __init__(self, user: Any) -> None:
        super().__init__("")
        self.user = user

    @cached_property
    def api_token(self) -> ApiToken:
        """Return an unsaved token with the user's name and role. Raise WrongRole."""
        return ApiToken(name=self.user.get_username(), role=self.role)

    @property
    def person(self) -> Any:
        return self.user

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
            raise WrongRole(f"The call needs the permissions {', '.join(VIEWS.values())}.")
        return Role.OPERATOR if self.user.has_perms(operator_permissions()) else Role.VIEWER


class StaffSession(SessionAuthentication):
    """Authentication by a session of staff. Calls that change something need the CSRF token."""

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
