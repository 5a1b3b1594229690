from django.apps import AppConfig


class LivenessConfig(AppConfig):
    name = "liveness"
    default_auto_field = "django.db.models.BigAutoField"
    verbose_name = "Liveness"

    def ready(self) -> None:
        from liveness import checks  # noqa: F401
