from django.apps import AppConfig


class ConsoleConfig(AppConfig):
    name = "controlplane.console"
    default_auto_field = "django.db.models.BigAutoField"
    verbose_name = "Console"

    def ready(self) -> None:
        from controlplane.console.actions.log_entries import log_item
        from jobs.hooks import item_done

        item_done.connect(log_item)
