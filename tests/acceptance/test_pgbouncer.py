"""A control plane behind a real PgBouncer in transaction mode, with DATABASE_DIRECT_URL."""

import re

import psycopg
import pytest

from tests.support import services
from tests.support.processes import eventually, fleet

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def plane(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pooled")
    with (
        services.Postgresql() as database,
        services.PgBouncer(folder, database) as pooler,
        fleet(
            folder,
            DATABASE_URL=pooler.url,
            DATABASE_DIRECT_URL=database.url,
            # Each call opens a new connection. That takes more time on a busy machine.
            LIVENESS_HEARTBEAT_INTERVAL="3",
            LIVENESS_TIMEOUT="12",
        ) as running,
    ):
        running.database, running.pooler = database, pooler
        running.migrate()
        yield running


def ask(server, question):
    with psycopg.connect(server.url, autocommit=True) as connection:
        return connection.execute(question).fetchall()


def check(running):
    return running.run("-W", "ignore", "-c", CHECK)


CHECK = """
import django, io, os
os.environ.setdefault('DJANGO_SETTINGS_MODULE', 'controlplane.settings')
django.setup()
from django.core.management import call_command
out = io.StringIO()
try:
    call_command("check", databases=["default"], stdout=out, stderr=out)
except Exception as error:
    out.write(str(error))
print(out.getvalue())
"""


def test_jobs_run_and_only_the_listener_is_connected_directly(plane):
    url = plane.web()
    plane.executor("executor", "--beat")
    plane.agent("one", url)
    body = [{"action": {"type": "script", "command": "true"}} for _ in range(20)]
    made = plane.call("POST", f"{url}/api/v1/jobs", plane.token("client"), body)["items"]
    eventually(
        lambda: ask(plane.database, "select count(*) from jobs_workerjob where state = 'COMPLETED'") == [(len(made),)],
        why="every job completes",
    )
    listening = "select count(*) from pg_stat_activity where application_name = 'controlplane listener'"
    eventually(lambda: ask(plane.database, listening) == [(1,)], why="the web process listens")
    assert "prepared statement" not in plane.logs()
    plane.end(["one", "executor", "web"])


def test_the_check_prints_what_is_missing_until_it_is_set(plane):
    role = [
        "datestyle to 'German, DMY'", "timezone to 'America/St_Johns'", "statement_timeout to '3h'",
        "default_transaction_isolation to 'serializable'",
    ]  # fmt: skip
    with psycopg.connect(plane.database.url, autocommit=True) as connection:
        for setting in role:
            connection.execute(f"alter role postgres set {setting}")
    plane.pooler.order("reconnect")
    orders = re.findall("ALTER ROLE .*;", said := check(plane))
    names = {order.split(" SET ")[1].split()[0] for order in orders}
    assert names == {
        "DateStyle", "TimeZone", "default_transaction_isolation", "lock_timeout", "idle_in_transaction_session_timeout"
    }, said  # fmt: skip
    with psycopg.connect(plane.database.url, autocommit=True) as connection:
        for order in orders:
            connection.execute(order)
    plane.pooler.order("reconnect")
    assert "ALTER ROLE" not in check(plane)
