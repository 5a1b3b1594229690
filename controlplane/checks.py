"""Django system checks: what a project lacks that has the control plane in itself."""

from typing import Any

from django.apps import apps
from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.db import connections, router
from django.template import TemplateDoesNotExist
from django.template.loader import get_template
from django.urls import NoReverseMatch, reverse

from controlplane.core.database import ALIAS, connection
from jobs.models import WorkerJob
from liveness.conf import conf
from liveness.models import Server

OLDEST = 150_000
ROUTE = 'path("controlplane/", include("controlplane.urls"))'


@register(Tags.compatibility)
def check_project(**_: Any) -> list[CheckMessage]:
    messages: list[CheckMessage] = []
    if ALIAS not in settings.DATABASES:
        messages.append(
            Error(f"CONTROLPLANE_DATABASE is {ALIAS!r}, and DATABASES has no such alias.", id="controlplane.E008")
        )
        return messages
    if any({route(Server), route(WorkerJob)} != {ALIAS} for route in (router.db_for_read, router.db_for_write)):
        messages.append(
            Error(
                f"The tables of the control plane are not looked for in the database {ALIAS!r}.",
                hint='Add "controlplane.core.database.Router" to DATABASE_ROUTERS, before others.',
                id="controlplane.E009",
            )
        )
    if (vendor := connections[ALIAS].vendor) != "postgresql":
        messages.append(
            Error(
                f"The database {ALIAS!r} is {vendor}; the control plane needs PostgreSQL 15 or later.",
                id="controlplane.E001",
            )
        )
    elif not is_psycopg3():
        messages.append(Error("PostgreSQL is reached by psycopg2; install psycopg 3.", id="controlplane.E002"))
    if not settings.USE_TZ:
        messages.append(Error("USE_TZ is False; the control plane needs times with a zone.", id="controlplane.E003"))
    wanted = ("admin", "auth", "contenttypes", "messages", "sessions", "staticfiles")
    if missing := [f"django.contrib.{name}" for name in wanted if not apps.is_installed(f"django.contrib.{name}")]:
        messages.append(Error(f"INSTALLED_APPS lacks {', '.join(missing)}.", id="controlplane.E004"))
    else:
        messages += check_pages()
    is_site = settings.WSGI_APPLICATION == "controlplane.wsgi.application"  # or settings that extend its own
    if not is_site and conf.read_settings()[0].witness_url is None:
        messages.append(
            Warning(
                'LIVENESS["WITNESS_URL"] is not set: nothing proves that heartbeats get in, so nobody is disconnected.',
                hint="Set it to the address that workers use, like https://example.com/controlplane.",
                id="controlplane.W001",
            )
        )
    return messages


def is_psycopg3() -> bool:
    from django.db.backends.postgresql.psycopg_any import is_psycopg3

    return is_psycopg3


def check_pages() -> list[CheckMessage]:
    messages: list[CheckMessage] = []
    for name, route in (("admin:index", 'path("admin/", admin.site.urls)'), ("instance:overview", ROUTE)):
        try:
            reverse(name)
        except NoReverseMatch:
            messages.append(Error(f"There is no address {name!r}: add {route} to the URLs.", id="controlplane.E005"))
    try:
        get_template("admin/instance/base.html")
    except TemplateDoesNotExist:
        messages.append(
            Error(
                "The templates of the pages are not found: set APP_DIRS in TEMPLATES, or list the loader "
                "django.template.loaders.app_directories.Loader.",
                id="controlplane.E006",
            )
        )
    return messages


@register(Tags.database)
def check_database(**options: Any) -> list[CheckMessage]:
    if ALIAS not in (options.get("databases") or ()) or connections[ALIAS].vendor != "postgresql":
        return []
    if (version := connection.pg_version) < OLDEST:
        return [Error(f"PostgreSQL is version {version // 10_000}; 15 or later is needed.", id="controlplane.E007")]
    return []
