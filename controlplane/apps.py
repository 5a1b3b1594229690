from django.apps import AppConfig


class ControlPlaneConfig(AppConfig):
    name = "controlplane"
    verbose_name = "Control plane"

    def ready(self) -> None:
        # Not in __init__.py: that would load Celery into the agents, which import this package's neighbours.
        from controlplane import celery, openapi  # noqa: F401
