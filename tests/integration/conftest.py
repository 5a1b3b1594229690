"""Fixtures for tests on a real PostgreSQL, with a clock that a test may set."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection
from django.db.models import F
from django.db.models.signals import post_migrate, pre_migrate
from django.template import Template
from django.test import Client

from jobs.models import WorkerJob
from liveness.models import Server
from liveness.services import tokens
from tests.support.celery_tasks import TAGS, CeleryWorker
from tests.support.claim_floors import seconds
from tests.support.clock import CLOCK, UUID7, UUID7_OF_PRODUCT, Clock
from tests.support.connecting import connection_parameters
from tests.support.emptying import empty_database
from tests.support.executions import Crew, Run
from tests.support.http import Caller, Worker
from tests.support.limits import settled
from tests.support.namespaces import blue, member, of, worker_of
from tests.support.operators import Operator
from tests.support.people import viewing
from tests.support.reports import held

RENDER = Template._render
SHARED_FIXTURES = [blue, held, member, of, seconds, settled, worker_of]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # pytest-django would empty each table after such a test, also those with one row that the migrations wrote.
    for item in items:
        wanted = getattr(item, "fixturenames", ())
        marks = [*item.iter_markers("django_db")]
        if "transactional_db" in wanted and ("db" in wanted or marks):
            raise pytest.UsageError(f"{item.nodeid} wants `transactional_db`, and `db` or its mark: take one.")
        if any(mark.args or mark.kwargs for mark in marks):
            raise pytest.UsageError(f"{item.nodeid} commits by the mark `django_db`: take `transactional_db`.")


def pytest_collection_finish() -> None:
    # Celery reads the timetable once. A test that finalizes the application first would freeze its own settings in it.
    from controlplane.celery import app

    app.finalize()
    assert app.conf.beat_schedule


def install_clock(**_: object) -> None:
    assert connection_parameters()["dbname"] == connection.settings_dict["NAME"]
    with connection.cursor() as cursor:
        cursor.execute(CLOCK)


def install_uuid7(**_: object) -> None:
    with connection.cursor() as cursor:
        cursor.execute(UUID7_OF_PRODUCT + UUID7)


@pytest.fixture(scope="session")
def django_db_modify_db_settings(django_db_modify_db_settings_parallel_suffix):
    database = settings.DATABASES["default"]
    # From here on the settings lead to the database of the tests. Otherwise a thread that an earlier test left could
    # open the pool to another one while this one is created, and all tests of this process would run there.
    database["NAME"] = database["TEST"]["NAME"] = database["TEST"]["NAME"] or f"test_{database['NAME']}"
    connection.close_pool()
    # Functions are looked up in test_clock before pg_catalog, so every statement of the product reads this clock.
    options = database["OPTIONS"]
    if options["pool"]:
        options["pool"]["timeout"] = 60  # tests have more threads than connections
    options["options"] += " -c search_path=public,test_clock,pg_catalog"
    pre_migrate.connect(install_clock)
    post_migrate.connect(install_uuid7)
    # Each test sets the password of its reader, and secure hashers need a third of a second.
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    # Each client has its own middleware, which would read all static files before its first request.
    settings.WHITENOISE_AUTOREFRESH = True


@pytest.fixture(scope="session", autouse=True)
def plain_templates(django_test_environment):
    """Undo that each template sends a copy of its context to the test client, because hardly any test looks at it."""
    Template._render = RENDER


@pytest.fixture
def clock(db):
    """Return the clock. It moves only with `advance` and `step`, so a busy machine makes no server late."""
    clock = Clock()
    clock.freeze()
    return clock


@pytest.fixture
def api(db):
    """Return callers of the API with a fresh token of a role: `api("client").post("/jobs", {...})`."""
    return lambda role: Caller(tokens.create_token(f"a {role}", role))


@pytest.fixture
def reader(client, db):
    """Log in a staff user with permission to view all pages and nothing else."""
    user = User.objects.create_user("reader", is_staff=True)
    user.user_permissions.set(viewing())
    client.force_login(user)
    return client


@pytest.fixture
def operator(api):
    return Operator(api("operator"))


@pytest.fixture
def submit(api):
    """Return a function that submits a job and returns the response. Its client is `submit.client`."""
    client = api("client")

    def submit(**job):
        answer = client.post("/jobs", {"action": {"type": "script", "command": "true"}, **job})
        assert answer.status_code in (200, 201), answer.json()
        return answer.json()

    submit.client = client
    return submit


@pytest.fixture
def worker(api, clock):
    """Return a function that registers RUNNING, fresh workers: `worker(tags=["script"])`; with `old` long ago."""
    registrar = api("worker")

    def make(old=False, **fields):
        server = Worker.register(registrar, **fields).running()
        if old:
            Server.objects.filter(pk=server.id).update(created_observed=F("heard_observed") - F("timeout") - 1)
        return server

    return make


@pytest.fixture
def celery_worker(api, clock):
    """Return a function that registers Celery workers with one token (or `registrar`). Their tasks move at once."""
    own = api("worker")
    config = {"worker_task_restart_strategy": "IMMEDIATELY"}
    return lambda name="one", registrar=own, **fields: CeleryWorker.register(
        registrar, name=name, **{"tags": TAGS, "config": config, **fields}
    ).running()


@pytest.fixture
def one(celery_worker):
    return celery_worker()


@pytest.fixture
def two(celery_worker):
    return celery_worker("two")


@pytest.fixture
def read_job(api):
    """Return a function that reads the latest job of a Celery task from the API: `seen("its id")`."""
    viewer = api("viewer")
    return lambda id="t": viewer.get(f"/jobs/{WorkerJob.objects.get(key=id).pk}").json()


@pytest.fixture
def staff(db):
    """Return a function that logs in staff with permissions: `staff("cordon_server")`."""

    def sign_in(*codenames, checks_csrf=True):
        user = User.objects.create_user("ann", is_staff=True)
        user.user_permissions.set(viewing(*codenames))
        client = Client(enforce_csrf_checks=checks_csrf)
        client.force_login(user)
        return client

    return sign_in


@pytest.fixture
def submitter(api):
    return api("client")


@pytest.fixture
def begin(submitter):
    """Return a function that begins an execution of some steps."""

    def begin(*steps, **fields):
        answer = submitter.post("/executions", {"name": "nightly", "steps": list(steps), **fields})
        assert answer.status_code == 201, answer.json()
        return Run(submitter, answer.json()["id"])

    return begin


@pytest.fixture
def do(worker):
    return Crew(worker(max_concurrent=20_000))


def drop_broken_function():
    with connection.cursor() as cursor:
        cursor.execute("drop function if exists broken() cascade")


@pytest.fixture
def transactional_db(django_db_setup, django_db_blocker):
    """Replace the fixture of pytest-django, which needs this name (or `db`) to make a database.

    Everything is committed, and all tables are emptied afterwards. The clock stands still.
    """
    with django_db_blocker.unblock():
        try:
            Clock().freeze()
            yield
        finally:
            with ExitStack() as ends:  # the last of them is the first to run, and each runs although another fails
                ends.callback(connection.close)
                ends.callback(drop_broken_function)
                ends.callback(empty_database)
                ends.callback(Clock().release)


@pytest.fixture
def committed(transactional_db):
    """Return a function that makes workers in a database where everything is committed: `committed()`."""
    registrar = Caller(tokens.create_token("registrar", "worker"))
    return lambda **fields: Worker.register(registrar, **fields).running()


@pytest.fixture
def threads():
    """Return a function that begins a call in a thread with its own connection, and returns its future."""

    def elsewhere(call, *args):
        try:
            return call(*args)
        finally:
            connection.close()

    with ThreadPoolExecutor(10) as pool:
        yield lambda call, *args: pool.submit(elsewhere, call, *args)
