"""Django's `migrate`, on a direct connection if DATABASE_DIRECT_URL is set: a pooler may end a long migration."""

from contextlib import nullcontext
from typing import Any

from django.core.management.commands.migrate import Command as Migrate

from controlplane.core.database import ALIAS, outside_pooler


class Command(Migrate):
    def handle(self, *arguments: Any, **options: Any) -> None:
        with outside_pooler() if options["database"] == ALIAS else nullcontext():
            super().handle(*arguments, **options)
