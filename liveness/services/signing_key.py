"""Store the fingerprint of the signing key in the database, so that no control plane with another key uses it."""

from django.core.exceptions import ImproperlyConfigured
from django.db.models import Q
from django.utils.crypto import salted_hmac

from controlplane.core.program import program
from liveness.models import Instance
from liveness.services.tokens import list_signing_keys

SALT = "liveness.key-fingerprint"
SHOWN = 8
"""Number of characters of a fingerprint in messages."""


class AnotherKey(ImproperlyConfigured):
    """The database belongs to a control plane with another signing key."""

    def __init__(self, recorded: str, present: str) -> None:
        super().__init__(
            f"This database belongs to another control plane: its signing key has the fingerprint {recorded[:SHOWN]}, "
            f"the SECRET_KEY (or SIGNING_KEY) of this process has {present[:SHOWN]}. Give all processes the same key, "
            "or set DATABASE_URL to a database of its own. If the key was replaced, list the former key in "
            f"SECRET_KEY_FALLBACKS. If it was lost, run `{program()} replace_signing_key`."
        )


def fingerprints() -> list[str]:
    """Return the fingerprint of the signing key, then those of the other accepted keys."""
    return [salted_hmac(SALT, "", key, algorithm="sha256").hexdigest() for _, key in list_signing_keys()]


def refuse_another_key() -> None:
    """Record the fingerprint of our key. Raise AnotherKey if the database has the fingerprint of an unknown key.

    If the database has the fingerprint of an earlier key that is still accepted, it is replaced.
    """
    compare(fingerprints())


def compare(ours: list[str]) -> None:
    present, *earlier = ours
    instance = Instance.objects.filter(pk=1)
    if instance.values_list("key_fingerprint", flat=True).first() == present:
        return
    # The condition is part of the update, so that one of two processes with different keys is refused.
    known = Q(key_fingerprint=None) | Q(key_fingerprint__in=[present, *earlier])
    if not instance.filter(known).update(key_fingerprint=present):
        recorded = instance.values_list("key_fingerprint", flat=True).first()
        raise AnotherKey(recorded or "", present)


def replace_key() -> None:
    """Record the fingerprint of our key in place of any other."""
    Instance.objects.filter(pk=1).update(key_fingerprint=fingerprints()[0])
