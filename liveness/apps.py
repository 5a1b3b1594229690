from django.apps import AppConfig


class LivenessConfig(AppConfig):
    name = "liveness"
    verbose_name = "Liveness"

    def ready(self) -> None:
        from liveness import checks  # noqa: F401
