"""Delete all committed rows from all tables. Set up Django first."""

from django.apps import apps
from django.contrib.auth import get_user_model
from django.db import connection, transaction

from liveness.models import Clock, Instance

KEPT = (Clock, Instance)  # tables whose only row comes from a migration
RESTART = """update liveness_clock set tick_at = 'epoch', advanced_at = clock_timestamp(), finished_at = null;
    delete from liveness_instance; insert into liveness_instance default values"""


def empty_database() -> None:
    models = [
        get_user_model(),
        *(model for name in ("liveness", "jobs") for model in apps.get_app_config(name).get_models()),
    ]
    tables = ", ".join(model._meta.db_table for model in models if model not in KEPT)
    with transaction.atomic(), connection.cursor() as cursor:
        # Lock in the order of the product: first the instance, as new connections do, then servers, as heartbeats do.
        cursor.execute("select from liveness_instance for update")
        cursor.execute(f"lock table liveness_server; truncate {tables} cascade; {RESTART}")
