"""Django, by WSGI. granian serves it as web.py has it."""

import os

from django.core.wsgi import get_wsgi_application

from controlplane.core import database_limits
from controlplane.core.garbage_collection import collect_seldom
from controlplane.startup import refuse_wrong_settings

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
database_limits.role = database_limits.WEB
collect_seldom()

application = get_wsgi_application()
refuse_wrong_settings()
