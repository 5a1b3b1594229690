"""Checks of a control plane process before it serves."""

import structlog
from django.conf import settings
from django.core import checks
from django.core.checks.registry import Tags, registry
from django.core.exceptions import ImproperlyConfigured

log = structlog.get_logger()

OF_CODE = {Tags.admin, Tags.database, Tags.models, Tags.staticfiles, Tags.templates, Tags.urls}
"""Tags of checks that depend on the code, or on the database."""


def refuse_wrong_settings() -> None:
    """Raise ImproperlyConfigured with every error in the settings. Neither WSGI nor Celery runs Django's checks.

    The checks of models, URLs and templates are left out. They only depend on the code, and import most of it.
    """
    try:
        _ = settings.SECRET_KEY  # Django refuses to give an empty one
    except ImproperlyConfigured:
        raise ImproperlyConfigured(
            f"SECRET_KEY is not set, and there is no data directory {settings.DATA_DIR} with one. Set SECRET_KEY to "
            "the same value for all processes, or set CONTROLPLANE_DATA_DIR to the directory."
        ) from None
    tags = registry.tags_available() - OF_CODE
    wrong = [str(error.msg) for error in checks.run_checks(tags=sorted(tags)) if error.is_serious()]
    if wrong:
        raise ImproperlyConfigured(" ".join(wrong))


def refuse_another_key() -> None:
    """Raise AnotherKey (an ImproperlyConfigured) if the database belongs to a control plane with another key.

    If the database cannot be reached now, the key is compared when the process registers.
    """
    # Imported here, because the importers of this module set DJANGO_SETTINGS_MODULE only after the import.
    from django.db import Error

    from controlplane.core.database import outside_pool
    from controlplane.core.database.silence import watch
    from liveness.services import signing_key

    try:
        with outside_pool():
            signing_key.refuse_another_key()
    except Error as error:
        log.warning("The signing key could not be compared yet", error=str(error).strip().split("\n")[0])
    finally:
        watch.stop()  # the caller may fork


def make_room_for_heartbeats() -> None:
    """Make the partitions of heartbeats that are missing. A failure is only logged: prune does it too."""
    from django.db import Error

    from controlplane.core.database import outside_pool
    from controlplane.core.database.silence import watch
    from liveness.services import retention

    try:
        with outside_pool():
            retention.make_room_for_heartbeats()
    except Error as error:
        log.warning("Partitions of heartbeats could not be made", error=str(error).strip().split("\n")[0])
    finally:
        watch.stop()  # the caller may fork
