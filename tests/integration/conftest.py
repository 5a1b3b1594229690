"""Fixtures for tests on a real PostgreSQL, with a clock that a test may set."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection
from django.db.models import F
from django.db.models.signals import post_migrate, pre_migrate
from django.test import Client

from jobs.models import WorkerJob
from liveness.models import Server
from liveness.services import tokens
from tests.support.celery_tasks import TAGS, CeleryWorker
from tests.support.clock import CLOCK, UUID7, UUID7_OF_PRODUCT, Clock
from tests.support.emptying import empty_database
from tests.support.executions import Crew, Run
from tests.support.http import Caller, Worker
from tests.support.operators import Operator
from tests.support.people import viewing


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # pytest-django would empty each table after such a test, those whose one row the migrations wrote too.
    for item in items:
        wanted = getattr(item, "fixturenames", ())
        marks = [*item.iter_markers("django_db")]
        if "transactional_db" in wanted and ("db" in wanted or marks):
            raise pytest.UsageError(f"{item.nodeid} wants `transactional_db`, and `db` or its mark: take one.")
        if any(mark.args or mark.kwargs for mark in marks):
            raise pytest.UsageError(f"{item.nodeid} commits by the mark `django_db`: take `transactional_db`.")


def install_clock(**_: object) -> None:
    with connection.cursor() as cursor:
        cursor.execute(CLOCK)


def install_uuid7(**_: object) -> None:
    with connection.cursor() as cursor:
        cursor.execute(UUID7_OF_PRODUCT + UUID7)


@pytest.fixture(scope="session")
def django_db_modify_db_settings(django_db_modify_db_settings_parallel_suffix):
    # Functions are looked up in test_clock before pg_catalog: every statement of the product reads our clock.
    options = settings.DATABASES["default"]["OPTIONS"]
    options["options"] += " -c search_path=public,test_clock,pg_catalog"
    pre_migrate.connect(install_clock)
    post_migrate.connect(install_uuid7)
    # The password of each test's reader: the hashers for people take a third of a second, on purpose.
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    # Each client has middleware of its own, which would look through all static files before its first request.
    settings.WHITENOISE_AUTOREFRESH = True


@pytest.fixture
def clock(db):
    """The clock, which stands still but for `advance` and `step`: a busy machine makes nobody late."""
    clock = Clock()
    clock.freeze()
    return clock


@pytest.fixture
def api(db):
    """Calls the API with a fresh token of a role: `api("client").post("/jobs", {...})`."""
    return lambda role: Caller(tokens.create_token(f"a {role}", role))


@pytest.fixture
def reader(client, db):
    """Staff who may view all that the pages show, and nothing else."""
    user = User.objects.create_user("reader", is_staff=True)
    user.user_permissions.set(viewing())
    client.force_login(user)
    return client


@pytest.fixture
def operator(api):
    return Operator(api("operator"))


@pytest.fixture
def submit(api):
    """Submits a job and returns it as the API answers it."""
    client = api("client")

    def submit(**job):
        answer = client.post("/jobs", {"action": {"type": "script", "command": "true"}, **job})
        assert answer.status_code in (200, 201), answer.json()
        return answer.json()

    submit.client = client
    return submit


@pytest.fixture
def worker(api, clock):
    """Registers workers: `worker(tags=["script"])`, RUNNING and fresh; `old`: heard for longer than its timeout."""
    registrar = api("worker")

    def make(old=False, **fields):
        server = Worker.register(registrar, **fields).running()
        if old:
            Server.objects.filter(pk=server.id).update(created_observed=F("heard_observed") - F("timeout") - 1)
        return server

    return make


@pytest.fixture
def celery_worker(api, clock):
    """Registers Celery workers whose tasks move at once, all with one token unless it is another's."""
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
    """The latest job of a Celery task, as the API shows it: `seen("its id")`."""
    viewer = api("viewer")
    return lambda id="t": viewer.get(f"/jobs/{WorkerJob.objects.get(key=id).pk}").json()


@pytest.fixture
def staff(db):
    """Signs in staff with permissions: `staff("cordon_server")`."""

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
    """Begins an execution of some steps."""

    def begin(*steps, **fields):
        answer = submitter.post("/executions", {"name": "nightly", "steps": list(steps), **fields})
        assert answer.status_code == 201, answer.json()
        return Run(submitter, answer.json()["id"])

    return begin


@pytest.fixture
def do(worker):
    return Crew(worker(max_concurrent=20_000))


@pytest.fixture
def transactional_db(django_db_setup, django_db_blocker):
    """In place of pytest-django's, which makes no database unless a test wants a fixture of this name or `db`.

    Everything is committed, and emptied again afterwards; the clock stands still.
    """
    with django_db_blocker.unblock():
        try:
            Clock().freeze()
            yield
        finally:
            empty_database()
            Clock().release()
            with connection.cursor() as cursor:
                cursor.execute("drop function if exists broken() cascade")
            connection.close()


@pytest.fixture
def committed(transactional_db):
    """Everything is committed. Makes workers: `committed()`."""
    registrar = Caller(tokens.create_token("registrar", "worker"))
    return lambda **fields: Worker.register(registrar, **fields).running()


@pytest.fixture
def threads():
    """Begins a call in a thread, with a connection of its own; its future."""

    def elsewhere(call, *args):
        try:
            return call(*args)
        finally:
            connection.close()

    with ThreadPoolExecutor(10) as pool:
        yield lambda call, *args: pool.submit(elsewhere, call, *args)
