"""Rows that a test commits are deleted before the next test."""

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection

from liveness.models import Instance
from liveness.services import maintenance
from tests.integration.races.test_hot_paths import submit_many
from tests.support.emptying import empty_database

OF_MIGRATIONS = {
    "django_migrations", "django_content_type", "auth_permission", "auth_group", "auth_group_permissions",
    "liveness_clock", "liveness_instance",
}  # fmt: skip
OF_NEW_CONNECTIONS = {"liveness_databasetimeline"}  # the pool may open one at any time


def tables_with_rows():
    with connection.cursor() as cursor:
        cursor.execute("select tablename from pg_tables where schemaname = 'public'")
        names = [name for (name,) in cursor.fetchall() if name not in OF_MIGRATIONS | OF_NEW_CONNECTIONS]
        cursor.execute("select " + ", ".join(f"exists (select from {name})" for name in names))  # noqa: S608
        return {name for name, has_rows in zip(names, cursor.fetchone(), strict=True) if has_rows}


@pytest.mark.parametrize("count", [1, 1000], ids=["small", "large"])
def test_tables_are_emptied_with_all_that_refer_to_them(committed, count):
    User.objects.create_user("ann").user_permissions.add(Permission.objects.earliest("pk"))
    submit_many(count)
    committed().hold()
    assert tables_with_rows() >= {"auth_user_user_permissions", "jobs_workerjob", "jobs_attempt", "liveness_heartbeat"}
    empty_database()
    assert tables_with_rows() == set()


def test_no_maintenance_that_has_been_is_left(transactional_db):
    before = Instance.objects.values().get()
    maintenance.enter_maintenance("operator:me", "a new disk")
    maintenance.exit_maintenance("operator:me", "")
    assert Instance.objects.values().get() != before
    empty_database()
    assert Instance.objects.values().get() == before
