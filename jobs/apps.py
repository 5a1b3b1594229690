from django.apps import AppConfig


class JobsConfig(AppConfig):
    name = "jobs"
    default_auto_field = "django.db.models.BigAutoField"
    verbose_name = "Jobs"

    def ready(self) -> None:
        from controlplane.core.database import base
        from jobs import checks  # noqa: F401
        from liveness.services import failover

        if failover.compare_on_connection not in base.on_connect:
            base.on_connect.append(failover.compare_on_connection)
