"""Name of the program that runs the commands of the control plane."""

from django.conf import settings


def program() -> str:
    """Return `controlplane` on a site of its own, where no `manage.py` is installed, and `manage.py` in a project."""
    return "controlplane" if settings.SETTINGS_MODULE == "controlplane.settings" else "python manage.py"
