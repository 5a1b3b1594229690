"""What a process of the control plane makes sure of before it serves."""

from django.core import checks
from django.core.exceptions import ImproperlyConfigured


def refuse_wrong_settings() -> None:
    """Raise ImproperlyConfigured with every error that Django's checks find: neither WSGI nor Celery asks them."""
    wrong = [str(error.msg) for error in checks.run_checks() if error.is_serious()]
    if wrong:
        raise ImproperlyConfigured(" ".join(wrong))
