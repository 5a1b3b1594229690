"""Base class of the control plane's commands."""

from django.core.management.base import BaseCommand

from controlplane.core.settings_schema import CHECKS


class OwnCommand(BaseCommand):
    """Command that checks the settings first, but no URLs and models: this would import all views."""

    requires_system_checks = (CHECKS,)
