"""Name of the program that runs the commands of the control plane."""

from django.conf import settings


def program() -> str:
    """Return `controlplane` on a site of its own, where no `manage.py` is installed, and `manage.py` in a project."""
    return "controlplane" if is_own_site() else "python manage.py"


def is_own_site() -> bool:
    """Return True with our settings, or with settings that extend them."""
    return bool(settings.WSGI_APPLICATION == "controlplane.wsgi.application")
