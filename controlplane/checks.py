"""Django system checks that find what a host project lacks."""

from collections.abc import Callable, Iterator
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core.checks import CheckMessage, Error, Info, Tags, Warning, register
from django.db import connections, router
from django.template import TemplateDoesNotExist
from django.template.loader import get_template
from django.urls import NoReverseMatch, reverse

from controlplane.core import database_limits
from controlplane.core.database import ALIAS, connection
from controlplane.core.database.base import DatabaseWrapper
from controlplane.core.program import is_own_site, program
from controlplane.core.settings_schema import CHECKS
from jobs.models import WorkerJob
from liveness.conf import conf
from liveness.models import Server

OLDEST = 150_000
ROUTE = 'path("controlplane/", include("controlplane.urls"))'


@register(Tags.compatibility, CHECKS)
def check_project(**_: object) -> list[CheckMessage]:
    messages: list[CheckMessage] = []
    if ALIAS not in settings.DATABASES:
        messages.append(
            Error(f"CONTROLPLANE_DATABASE is {ALIAS!r}, but DATABASES has no such alias.", id="controlplane.E008")
        )
        return messages
    if any({route(Server), route(WorkerJob)} != {ALIAS} for route in (router.db_for_read, router.db_for_write)):
        messages.append(
            Error(
                f"DATABASE_ROUTERS do not direct the control plane's models to the database {ALIAS!r}.",
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
        messages.append(
            Error("Django connects to PostgreSQL with psycopg2; install psycopg 3.", id="controlplane.E002")
        )
    if not settings.USE_TZ:
        messages.append(
            Error(
                "USE_TZ is False; set it to True, because the control plane needs times with a time zone.",
                id="controlplane.E003",
            )
        )
    if missing := lacking_apps():
        messages.append(Error(f"INSTALLED_APPS lacks {', '.join(missing)}.", id="controlplane.E004"))
    if not is_own_site() and conf.read_settings()[0].witness_url is None:
        messages.append(
            Warning(
                'LIVENESS["WITNESS_URL"] is not set. Nothing proves that heartbeats arrive, so no server is lost.',
                hint="Set it to the address that workers use, like https://example.com/controlplane.",
                id="controlplane.W001",
            )
        )
    return messages


def lacking_apps() -> list[str]:
    wanted = ("admin", "auth", "contenttypes", "messages", "sessions", "staticfiles")
    return [f"django.contrib.{name}" for name in wanted if not apps.is_installed(f"django.contrib.{name}")]


def is_psycopg3() -> bool:
    from django.db.backends.postgresql.psycopg_any import is_psycopg3

    return is_psycopg3


@register(Tags.urls)
def check_pages(**_: object) -> list[CheckMessage]:
    messages: list[CheckMessage] = []
    if lacking_apps():
        return messages
    for name, route in (("admin:index", 'path("admin/", admin.site.urls)'), ("instance:overview", ROUTE)):
        try:
            reverse(name)
        except NoReverseMatch:
            messages.append(Error(f"There is no URL named {name!r}: add {route} to the URLs.", id="controlplane.E005"))
    try:
        get_template("admin/instance/base.html")
    except TemplateDoesNotExist:
        messages.append(
            Error(
                "The templates of the pages cannot be found: set APP_DIRS in TEMPLATES, or list the loader "
                "django.template.loaders.app_directories.Loader.",
                id="controlplane.E006",
            )
        )
    return messages


@register(Tags.database)
def check_database(**options: object) -> list[CheckMessage]:
    """Check the version and the features of the database that our statements and our database engine rely on."""
    if not includes_ours(options):
        return []
    if (version := connection.pg_version) < OLDEST:
        return [Error(f"PostgreSQL is version {version // 10_000}; 15 or later is needed.", id="controlplane.E007")]
    messages = list(check_session(database_limits.REQUIRED, "controlplane.E010", Error))
    if isinstance(connections[ALIAS], DatabaseWrapper):
        messages += check_session(wanted_limits(), "controlplane.W002", Warning)
    return messages


@register(Tags.database)
def check_books(**_: object) -> list[CheckMessage]:
    """Check the books of SQL. `migrate` does this for all processes of an installation."""
    from controlplane.core.sql_book import BookError
    from jobs import sql as jobs_sql
    from liveness import sql as liveness_sql

    messages: list[CheckMessage] = []
    for statements in (liveness_sql.sql, jobs_sql.sql):
        try:
            statements.check()
        except BookError as error:
            messages.append(
                Error(f"A book of SQL is invalid: {error}.", hint="Install the package again.", id="controlplane.E011")
            )
    return messages


@register(Tags.database)
def check_default_partitions(**options: Any) -> list[CheckMessage]:
    """Check that the default partitions are empty. Without our tables there is nothing to check."""
    from liveness.selectors.metrics import default_partition_rows
    from liveness.services import partitions

    if not includes_ours(options) or not partitions.has_table(f"{partitions.TABLES[0]}_default"):
        return []
    return [
        Warning(
            f"The default partition of {table} has {rows:,} rows, because partitions were not made in time.",
            hint=f"Run `{program()} prune`, which moves them. Look whether beat and an executor run.",
            id="controlplane.W003",
        )
        for table, rows in default_partition_rows().items()
        if rows
    ]


@register(Tags.database, deploy=True)
def check_limits_of_other_engine(**options: object) -> list[CheckMessage]:
    """Check the limits before a deployment, if the project has its own database engine.

    Such an engine does not set them.
    """
    if not includes_ours(options) or isinstance(connections[ALIAS], DatabaseWrapper):
        return []
    return list(check_session(wanted_limits(), "controlplane.I001", Info))


def includes_ours(options: dict[str, Any]) -> bool:
    return ALIAS in (options.get("databases") or ()) and connections[ALIAS].vendor == "postgresql"


def wanted_limits() -> dict[str, str]:
    limits = {} if database_limits.is_pooled else database_limits.session_limits()
    return limits or database_limits.POOLED_LIMITS


def check_session(
    wanted: dict[str, str], id: str, message_class: Callable[..., CheckMessage]
) -> Iterator[CheckMessage]:
    """Compare the parameters of this session with those that our statements rely on.

    Our database engine sets them when it connects. A pooler that shares connections by transaction drops them.
    """
    with connection.cursor() as cursor:
        cursor.execute("select session_user, current_database()")
        role, database = map(connection.ops.quote_name, cursor.fetchone())
        # Behind a pooler the present value may be that of another client.
        cursor.execute("select name, setting, reset_val from pg_settings")
        pooled = database_limits.is_pooled
        actual = {name.lower(): default if pooled else value for name, value, default in cursor.fetchall()}
    for name, value in wanted.items():
        if name == "TimeZone" and not database_limits.is_pooled:
            continue  # Django sets it from DATABASES
        found = actual[name.lower()]
        # The order of day and month does not matter: "ISO, DMY" is ISO.
        if found.split(",")[0].lower() == value.lower() or (name in database_limits.PARAMETERS and found != "0"):
            continue
        yield message_class(
            f"Sessions of the control plane have {name} = {found!r} but need {value!r}.",
            hint=f"ALTER ROLE {role} IN DATABASE {database} SET {name} TO '{value}';",
            id=id,
        )
