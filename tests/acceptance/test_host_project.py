"""The control plane as apps of a project that others have written, with users, REST settings and Celery of its own."""

import json
import os
import signal
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest
import urllib3

from tests.support import wheel
from tests.support.processes import SHORT, beside, drop, eventually, free_port, server

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(400)]

SETTINGS = """
import dj_database_url
import os
import controlplane.apps

INSTALLED_APPS += ["people", "rest_framework"]
INSTALLED_APPS += [app for app in controlplane.apps.INSTALLED if app not in INSTALLED_APPS]
AUTH_USER_MODEL = "people.Person"
DATABASES = {"default": dj_database_url.parse(os.environ["THEIR_DATABASE"])}
LANGUAGE_CODE, TIME_ZONE = "de", "Europe/Zurich"
REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["rest_framework.authentication.BasicAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAdminUser"],
    "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.FormParser"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.StaticHTMLRenderer"],
    "DEFAULT_THROTTLE_CLASSES": ["rest_framework.throttling.AnonRateThrottle"],
    "DEFAULT_THROTTLE_RATES": {"anon": "1/day"},
    "DEFAULT_VERSIONING_CLASS": "rest_framework.versioning.AcceptHeaderVersioning",
    "EXCEPTION_HANDLER": "mysite.urls.teapot",
    "DATETIME_FORMAT": "%d.%m.%Y",
}
"""
OF_ITS_OWN = """
THEIRS = {"ENGINE": "django.db.backends.sqlite3", "NAME": BASE_DIR / "theirs"}
DATABASES = {"default": THEIRS, "fleet": DATABASES["default"]}
CONTROLPLANE_DATABASE = "fleet"
DATABASE_ROUTERS = ["controlplane.core.database.Router"]
"""
URLS = """
from django.http import HttpResponse
from django.urls import include
from rest_framework.views import APIView

def teapot(error, context):
    return HttpResponse("theirs", status=418)

urlpatterns += [path("mine/", APIView.as_view()), path("controlplane/", include("controlplane.urls"))]
"""
MODELS = """
from django.contrib.auth.models import AbstractUser
from django.db import models

class Person(AbstractUser):
    room = models.CharField(max_length=10)
"""
CELERY = """
import os
from celery import Celery
from controlplane import beat
from controlplane.embedded import folder_broker

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mysite.settings")
folder_broker.install_transport()
app = Celery("mysite", broker="filesystem://")
folder = os.environ["THEIR_MESSAGES"]
app.conf.broker_transport_options = {
    "data_folder_in": folder, "data_folder_out": folder, "control_folder": folder, "polling_interval": 0.1,
}
app.conf.beat_schedule = beat.schedule()
app.conf.worker_max_tasks_per_child = 3
app.autodiscover_tasks()
"""
PREPARE = """
import importlib
import json
import sys
from django.core.management import call_command
from liveness.services import tokens

call_command("makemigrations", "people", verbosity=0)
importlib.invalidate_caches()
for database in json.loads('%s'):
    call_command("migrate", database=database, verbosity=0)
    call_command("check", databases=[database], fail_level="WARNING")
call_command("makemigrations", check_changes=True, dry_run=True, verbosity=0)
print(json.dumps([tokens.create_token(role, role) for role in ("worker", "client")]))
"""
LOOK = """
import json
from celery import current_app
from django.contrib.auth import get_user_model
from django.test import Client
from liveness.models import Server
reader = get_user_model().objects.create_superuser("reader", room="7")
client = Client(SERVER_NAME="localhost")
client.force_login(reader)
pages = ["", "servers/", "jobs/", "executions/", "triggers/", "activity/", "quarantine/", "recovery/"]
seen = {page: client.get(f"/controlplane/admin/instance/{page}") for page in [*pages, "jobs/%s/"]}
print(json.dumps({
    "pages": {page: answer.status_code for page, answer in seen.items()},
    "styled": all(b"controlplane/instance.css" in answer.content for answer in seen.values()),
    "session": client.get("/controlplane/api/v1/servers").status_code,
    "document": list(client.get("/controlplane/api/schema", headers={"Accept": "application/vnd.oai.openapi+json"})
        .json()["paths"])[0],
    "admin": client.get("/admin/").content.decode(),
    "table": client.get("/admin/liveness/server/").status_code,
    "theirs": client.get("/mine/").status_code,
    "celery": current_app.main,
    "executors": list(Server.objects.filter(type="EXECUTOR").values_list("state", "pid")),
}))
"""

LOOK_INTO_BOTH = """
import json
import re
from django.contrib.admin.models import LogEntry
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.db import connections, transaction
from django.test import Client
from jobs.in_process import submit
from jobs.models import WorkerJob
try:
    with transaction.atomic(using="fleet"):
        gone = submit({"type": "script", "command": "true"}, namespace="red")
        raise LookupError
except LookupError:
    pass
waits = submit({"type": "script", "command": "true"}, tags=["nobody"], unmatched="wait")
client = Client(SERVER_NAME="localhost")
client.force_login(get_user_model().objects.get(username="reader"))
page = f"/controlplane/admin/instance/jobs/cancel/?pick={waits}"
seen = dict(re.findall(r'<input type="hidden" name="(\\w+)" value="([^"]*)"', client.get(page).content.decode()))
done = client.post(page, {**seen, "note": "by hand"})
print(json.dumps({
    "tables": {alias: connections[alias].introspection.table_names() for alias in ("default", "fleet")},
    "groups": list(Group.objects.order_by("name").values_list("name", flat=True)),
    "gone": WorkerJob.objects.filter(pk=gone).exists(),
    "cancelled": [done.status_code, WorkerJob.objects.get(pk=waits).state],
    "log": list(LogEntry.objects.values_list("object_id", "change_message")),
    "waits": str(waits),
    "ready": client.get("/controlplane/readyz").json(),
}))
"""


class Project:
    """A project of others in a folder of its own, and its processes."""

    def __init__(self, folder: Path, database: str, programs: Path) -> None:
        self.programs = programs
        self.home, self.work = folder / "home", folder / "home" / "work"
        (folder / "messages").mkdir()
        self.work.mkdir(parents=True)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/controlplane"
        self.more = {
            **SHORT, "THEIR_DATABASE": database, "THEIR_MESSAGES": str(folder / "messages"),
            "LIVENESS_WITNESS_URL": self.url, "LIVENESS_SIGNING_KEY": "k" * 50, "TMPDIR": str(folder),
        }  # fmt: skip
        self.run("-m", "django", "startproject", "mysite", ".")
        self.run("manage.py", "startapp", "people")
        site = self.work / "mysite"
        (self.work / "people" / "models.py").write_text(MODELS)
        (site / "celery.py").write_text(CELERY)
        (site / "__init__.py").write_text("from mysite.celery import app\n")
        for name, text in (("settings.py", SETTINGS), ("urls.py", URLS)):
            (site / name).write_text((site / name).read_text() + text)
        self.http = urllib3.PoolManager(retries=False, timeout=60)

    def add_settings(self, text: str) -> None:
        file = self.work / "mysite" / "settings.py"
        file.write_text(f"{file.read_text()}\n{text}\n")

    def run(self, *words: str) -> str:
        return wheel.run(
            str(self.programs / "python"), *words, cwd=self.work, env=wheel.environment(self.home, **self.more)
        )

    def shell(self, code: str) -> str:
        return self.run("manage.py", "shell", "--verbosity", "0", "--command", code)

    def start(self, *words: str, **more: str) -> wheel.Running:
        return wheel.Running(str(self.programs / "python"), *words, home=self.home, **self.more, **more)

    def ask(self, path: str, token: str, **body: object) -> dict:
        answer = self.http.request(
            "POST" if body else "GET", f"{self.url}/api/v1{path}", json=body or None,
            headers={"Authorization": f"Bearer {token}"},
        )  # fmt: skip
        assert answer.status < 300, answer.data
        return json.loads(answer.data)


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    return wheel.install(tmp_path_factory.mktemp("host") / "environment")


@pytest.fixture
def project(tmp_path, programs):
    name = f"host_{os.getpid()}"
    server(f"create database {name}")
    yield Project(tmp_path, beside(name), programs)
    drop(beside(name))


def test_a_project_with_users_rest_settings_and_celery_of_its_own_runs_the_main_job(project):
    run_main_job(project, "default")


@pytest.mark.exhaustive
def test_the_control_plane_may_have_a_database_of_its_own_beside_that_of_the_project(project):
    project.add_settings(OF_ITS_OWN)
    run_main_job(project, "default", "fleet")
    seen = json.loads(project.shell(LOOK_INTO_BOTH))
    ours = {name for names in seen["tables"].values() for name in names if name.startswith(("jobs_", "liveness_"))}
    assert {"jobs_workerjob", "liveness_server"} < ours
    assert set(seen["tables"]["fleet"]) == ours | {"django_migrations"}
    assert not ours & set(seen["tables"]["default"]) and "people_person" in seen["tables"]["default"]
    groups = ("administrator", "all namespaces", "auditor", "operator", "viewer")
    assert seen["groups"] == [f"Control plane {name}" for name in groups]
    assert seen["gone"] is False and seen["cancelled"] == [302, "CANCELLED"]
    assert seen["log"] == [[seen["waits"], "Cancel: by hand"]], "the admin's log is beside its users"
    assert seen["ready"] == {"status": "ok", "problems": []}


def run_main_job(project: Project, *databases: str) -> None:
    worker, client = json.loads(project.shell(PREPARE % json.dumps(databases)).splitlines()[-1])
    with ExitStack() as ends:

        def begin(*words: str, **more: str) -> wheel.Running:
            running = project.start(*words, **more)
            ends.callback(running.end)
            return running

        begin("manage.py", "runserver", "--noreload", f"127.0.0.1:{project.port}")
        eventually(lambda: reachable(project), why="their web server answers")
        executor = begin(
            "-m", "celery", "-A", "mysite", "worker", "--beat", "--concurrency", "2", "--loglevel", "warning"
        )
        agents = {
            name: begin("-m", "controlplane.agent", "--url", project.url, "--name", name, CONTROLPLANE_TOKEN=worker)
            for name in ("one", "two")
        }
        for agent in agents.values():
            agent.wait_for("Worker registered")
        command = 'test "$JOB_ATTEMPT" = 2 || sleep 600; echo done'
        job = project.ask("/jobs", client, action={"type": "script", "command": command})["id"]
        eventually(lambda: project.ask(f"/jobs/{job}", client)["state"] == "RUNNING", why="it runs")
        first = next(entry for entry in project.ask(f"/jobs/{job}", client)["timeline"] if entry["server"])
        os.killpg(agents[first["server"]["name"]].process.pid, signal.SIGKILL)

        def ended() -> dict:
            job_now = project.ask(f"/jobs/{job}", client)
            return job_now if job_now["state"] == "COMPLETED" else {}

        job_now = eventually(ended, why="another has run it")
        states = [entry["state"] for entry in job_now["timeline"] if entry["attempt"] is not None]
        assert states == ["CLAIMED", "RUNNING", "RESUBMITTED", "CLAIMED", "RUNNING", "COMPLETED"]
        assert job_now["timeline"][0]["at"].endswith("Z"), "in UTC, whatever their zone and their format of dates"
        answer = project.http.request("GET", f"{project.url}/api/v1/jobs")
        assert answer.status == 401 and answer.headers["Content-Type"] == "application/problem+json"
        look = json.loads(project.shell(LOOK.replace("%s", job)))
    assert set(look["pages"].values()) == {200}, look["pages"]
    assert look["styled"] and look["session"] == look["table"] == 200
    assert look["document"].startswith("/api/v1/"), "and none of theirs"
    assert "Control plane</a>" not in look["admin"].partition("</header>")[0], "their site keeps its name"
    assert look["theirs"] == 418, "what their settings say is theirs"
    assert look["celery"] == "mysite"
    assert look["executors"] == [["RUNNING", executor.process.pid]], "its children come and go, and are one executor"
    states = "from liveness.models import Server; print(*Server.objects.filter(type='EXECUTOR').values_list('state'))"
    ended = project.shell(states)
    assert ended.strip() == "('TERMINATED_GRACEFULLY',)"


def reachable(project: Project) -> bool:
    try:
        return project.http.request("GET", f"{project.url}/livez").status == 200
    except urllib3.exceptions.HTTPError:
        return False


LACKS = {
    'DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "x"}}': "needs PostgreSQL 15",
    "USE_TZ = False": "USE_TZ is False",
    "MIDDLEWARE = []": "SessionMiddleware",
    'ROOT_URLCONF = "bare"': "instance:overview",
    'TEMPLATES[0]["APP_DIRS"] = False': "templates of the pages cannot be found",
    'CONTROLPLANE_DATABASE = "fleet"': "DATABASES has no such alias",
    OF_ITS_OWN + "DATABASE_ROUTERS = []": "do not direct the control plane's models to the database 'fleet'",
}


def test_what_a_project_lacks_is_named_by_a_check(project):
    (project.work / "bare.py").write_text("urlpatterns = []\n")
    for number, changed in enumerate(LACKS):
        (project.work / f"lacks_{number}.py").write_text(f"from mysite.settings import *\n{changed}\n")
    said = {
        message: checked(project, DJANGO_SETTINGS_MODULE=f"lacks_{number}")
        for number, message in enumerate(LACKS.values())
    }
    assert {message: said[message] for message in said if message not in said[message]} == {}


def test_a_project_with_a_package_of_the_same_name_gets_an_error(project):
    (project.work / "jobs").mkdir()
    (project.work / "jobs" / "__init__.py").touch()
    assert "The package 'jobs' was found at" in checked(project)


def checked(project: Project, **more: str) -> str:
    """Run Django's checks, which fail. Return their errors."""
    done = subprocess.run(
        [project.programs / "python", "manage.py", "check"], cwd=project.work, capture_output=True, text=True,
        env=wheel.environment(project.home, **project.more, **more),
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    return done.stderr
