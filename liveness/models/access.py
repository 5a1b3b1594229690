"""API tokens, and counts of sign-in attempts."""

from django.contrib.postgres.fields import ArrayField
from django.db import models

from controlplane.core.model_fields import (
    ClockTimestamp,
    Uuid7,
    check_one_of,
)


class Role(models.TextChoices):
    """Role of an API token."""

    WORKER = "worker"
    CLIENT = "client"
    VIEWER = "viewer"
    OPERATOR = "operator"


DEFAULT_NAMESPACE = "default"
"""Namespace of all objects whose creator names no other."""

OF_NAMESPACE = "namespace:"
"""Prefix of the codenames of permissions for one namespace."""
ALL_NAMESPACES = "view_all_namespaces"
"""Codename of the permission for all namespaces."""

API_PREFIX = "cp_"
"""First characters of the text of every API token."""

# These digests are no SHA-256 values, so no token text matches them. They are unique, so each token is created once.
OWN_DIGEST = b"control plane"
"""Digest of the token of the control plane's own processes."""
PROJECT_DIGEST = b"project"
"""Digest of the token that owns the jobs of a project's own code."""


class ApiToken(models.Model):
    """API token: the right to call the API in one role. Only the SHA-256 of its text is stored."""

    id = models.UUIDField(primary_key=True, db_default=Uuid7())
    name = models.TextField()
    role = models.TextField(choices=Role)
    prefix = models.TextField(help_text="First characters of the token, to recognize it.")
    digest = models.BinaryField(unique=True)
    created_at = models.DateTimeField(db_default=ClockTimestamp())
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    types = ArrayField(models.TextField(), null=True, help_text="Server types that it may register. Null: all.")
    tags = ArrayField(models.TextField(), null=True, help_text="Tags that its servers may have. Null: all.")
    namespace = models.TextField(db_default=DEFAULT_NAMESPACE, help_text="Only namespace that the token has access to.")
    cluster = models.TextField(null=True, help_text="Only cluster that its servers may be in. Null: all.")
    webhook_secret = models.TextField(null=True, help_text="Secret that signs notifications. Null: not used yet.")
    max_servers = models.IntegerField(null=True, help_text="Largest number of its servers at once. Null: no limit.")

    class Meta:
        ordering = ["-created_at"]
        constraints = [check_one_of("role", Role.values, "apitoken_role")]
        verbose_name = "API token"

    def __str__(self) -> str:
        return f"{self.name} ({self.role}, {self.prefix}…)"


class SignIn(models.Model):
    """Count of recent sign-in attempts for a name from an address, or for an address."""

    key = models.TextField(
        primary_key=True, help_text="Digest of name and address, because some people type their password as name."
    )
    until = models.DateTimeField(help_text="Time from which earlier attempts no longer count.")

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.key} until {self.until}"
