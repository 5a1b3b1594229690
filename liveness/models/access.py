"""Who may call: API tokens, and tries to sign in."""

from django.contrib.postgres.fields import ArrayField
from django.db import models

from controlplane.core.model_fields import (
    ClockTimestamp,
    Uuid7,
    check_one_of,
)


class Role(models.TextChoices):
    """What an API token may be used for."""

    WORKER = "worker"
    CLIENT = "client"
    VIEWER = "viewer"
    OPERATOR = "operator"


DEFAULT_NAMESPACE = "default"
"""Where everything is of which nobody says anything else."""

OF_NAMESPACE = "namespace:"
"""Before its name: the codename of the permission that has somebody reach it, and no other that he has none for."""

# No SHA-256, so there is no text that these tokens would let in; and unique, so that each is made once.
OWN_DIGEST = b"control plane"
"""Of the token with which the control plane's own processes are registered."""
PROJECT_DIGEST = b"project"
"""Of the token that owns what the code of a project submits in its own process."""


class ApiToken(models.Model):
    """The right to call the API in one role. Only the SHA-256 of the token is kept."""

    id = models.UUIDField(primary_key=True, db_default=Uuid7())
    name = models.TextField()
    role = models.TextField(choices=Role)
    prefix = models.TextField(help_text="The first letters of the token, to tell it by.")
    digest = models.BinaryField(unique=True)
    created_at = models.DateTimeField(db_default=ClockTimestamp())
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    types = ArrayField(models.TextField(), null=True, help_text="What alone may register with it. Null: any.")
    tags = ArrayField(models.TextField(), null=True, help_text="The tags that alone these may have. Null: any.")
    namespace = models.TextField(db_default=DEFAULT_NAMESPACE, help_text="Whose work it is for; it reaches no other's.")
    cluster = models.TextField(null=True, help_text="The cluster that alone they may be of. Null: any.")
    max_servers = models.IntegerField(null=True, help_text="How many of them may be there at once. Null: any number.")

    class Meta:
        ordering = ["-created_at"]
        constraints = [check_one_of("role", Role.values, "apitoken_role")]
        verbose_name = "API token"

    def __str__(self) -> str:
        return f"{self.name} ({self.role}, {self.prefix}…)"


class SignIn(models.Model):
    """How often somebody tried to sign in of late: under a name from an address, or from an address at all."""

    key = models.TextField(primary_key=True, help_text="A digest: some type their password where the name belongs.")
    until = models.DateTimeField(help_text="From then on as if there had been no try.")

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.key} until {self.until}"
