"""What a process of the control plane makes sure of before it serves."""

from django.conf import settings
from django.core import checks
from django.core.exceptions import ImproperlyConfigured


def refuse_wrong_settings() -> None:
    """Raise ImproperlyConfigured with every error that Django's checks find: neither WSGI nor Celery asks them."""
    try:
        settings.SECRET_KEY  # noqa: B018 - Django refuses to give an empty one
    except ImproperlyConfigured:
        raise ImproperlyConfigured(
            f"There is no SECRET_KEY, and no data directory at {settings.DATA_DIR} that keeps one. Set SECRET_KEY, "
            "the same for all processes, or name the directory with CONTROLPLANE_DATA_DIR."
        ) from None
    wrong = [str(error.msg) for error in checks.run_checks() if error.is_serious()]
    if wrong:
        raise ImproperlyConfigured(" ".join(wrong))
