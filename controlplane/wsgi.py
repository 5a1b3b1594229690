"""WSGI application of Django. granian serves it through web.py."""

import os

import django
from django.urls import get_resolver

from controlplane.core import database_limits
from controlplane.core.garbage_collection import collect_seldom
from controlplane.serving.lean_calls import LeanHandler
from controlplane.startup import refuse_wrong_settings

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
database_limits.role = database_limits.WEB
collect_seldom()

django.setup(set_prefix=False)
application = LeanHandler()
refuse_wrong_settings()
_ = get_resolver().url_patterns  # imports all views, so that the first request need not wait for them
