from django.apps import AppConfig
from django.conf import settings

SIMPLE_ADMIN = "django.contrib.admin.apps.SimpleAdminConfig"


class ConsoleConfig(AppConfig):
    name = "controlplane.console"
    default_auto_field = "django.db.models.BigAutoField"
    verbose_name = "Console"

    def ready(self) -> None:
        from controlplane.console.actions.log_entries import log_item
        from jobs.hooks import item_done

        item_done.connect(log_item)
        if settings.ROOT_URLCONF != "controlplane.site_urls" and SIMPLE_ADMIN in settings.INSTALLED_APPS:
            # These settings extend ours and have URLs of their own, so site_urls.py does not load the admins.
            from django.contrib import admin

            admin.autodiscover()
