"""The WSGI application. granian serves it as web.py has it."""

import os

from django.core.wsgi import get_wsgi_application

from controlplane import database_limits
from controlplane.startup import refuse_wrong_settings

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
database_limits.role = database_limits.WEB

long_way = get_wsgi_application()
refuse_wrong_settings()

from jobs.api.shortcut import with_shortcut  # noqa: E402 - it needs Django set up

application = with_shortcut(long_way)
