"""docs/how-to/keys.md, followed with real processes: keys and tokens change while a job runs."""

import re
import time

import pytest

from tests.support.processes import ROOT, eventually, fleet, free_port

pytestmark = pytest.mark.acceptance

KEYS = {"OLD": "0123456789abcdef" * 4, "NEW": "fedcba9876543210" * 4, "": ""}
SIGN_IN = """
import django, os, time
os.environ["DJANGO_SETTINGS_MODULE"] = "controlplane.settings"
django.setup()
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.auth.models import User
from django.contrib.sessions.backends.db import SessionStore
user = User.objects.create_superuser("ops")
session = SessionStore()
session[SESSION_KEY], session[BACKEND_SESSION_KEY] = str(user.pk), "controlplane.console.sign_in.Throttled"
session[HASH_SESSION_KEY] = user.get_session_auth_hash()
session["signed_in_at"] = session["renewed_at"] = time.time()
session.save()
print(session.session_key)
"""


def steps():
    """Return the key and the fallback keys of each step of the table in the page."""
    page = (ROOT / "docs/how-to/keys.md").read_text()
    rows = re.findall(r"^\| \d \| (\w*) *\| (\w*) *\| .* \|$", page, re.MULTILINE)
    assert len(rows) == 3 and rows[-1] == ("NEW", "")
    return rows


class Plane:
    """A web process and an executor that restart with other keys, always at the same address."""

    def __init__(self, running):
        self.running, self.port = running, free_port()
        running.env["SECRET_KEY"] = KEYS["OLD"]
        self.url = self.restart("OLD", "")

    def restart(self, key, fallback):
        self.running.end([name for name in ("executor", "web") if name in self.running.processes])
        self.running.env |= {"SECRET_KEY": KEYS[key], "SECRET_KEY_FALLBACKS": KEYS[fallback]}
        url = self.running.web("web", port=self.port)
        self.running.executor("executor", "--beat")
        return url

    def ask(self, statement):
        with self.running.connected() as database:
            return database.execute(statement).fetchone()[0]

    def wait_for_heartbeats(self):
        """Wait until the worker has called the control plane as it is now, twice."""
        beat = "select max(last_heartbeat_at) from liveness_server where type = 'WORKER'"
        for _ in range(2):
            last = self.ask(beat)
            eventually(lambda last=last: self.ask(beat) > last, why="the worker beats")

    def is_signed_in(self):
        """Ask for a page as a browser does, which keeps the cookies that it gets."""
        page = self.running.http.request(
            "GET", f"{self.url}/admin/instance/", headers={"Cookie": f"sessionid={self.session}"}, redirect=False
        )
        if cookie := re.search(r"sessionid=(\w+)", page.headers.get("Set-Cookie", "")):
            self.session = cookie[1]
        return page.status == 200


def test_keys_and_tokens_change_while_a_job_runs_and_nobody_signs_in_again(tmp_path):
    long = {"LIVENESS_TIMEOUT": "90", "LIVENESS_TERMINATION_GRACE_PERIOD": "90", "CELERY_BROKER_URL": "filesystem://"}
    with fleet(tmp_path, **long) as running:
        plane = Plane(running)
        plane.session = running.run("-c", SIGN_IN)
        assert plane.is_signed_in()
        old, file = running.token("worker"), tmp_path / "token"
        file.write_text(old)
        agent = running.start(
            "agent", "-m", "controlplane.agent", "--url", plane.url, "--name", "one", "--poll", "0.2", "--runtimes", "",
            "--token-file", str(file), "--concurrency", "2",
        )  # fmt: skip
        done = tmp_path / "done"
        action = {"type": "script", "command": f"until [ -e {done} ]; do sleep 0.2; done"}
        job = running.call("POST", f"{plane.url}/api/v1/jobs", running.token("client"), {"action": action})["id"]
        eventually(lambda: plane.ask("select count(*) from jobs_workerjob where state = 'RUNNING'"), why="it runs")

        new = running.run("manage.py", "create_token", "--role", "worker", "--types", "WORKER", "workers from 2027")
        draft = tmp_path / "draft"
        draft.write_text(new)
        draft.rename(file)
        assert "revoked: 1" in running.run("manage.py", "revoke_token", old[:11], "--note", "replaced")
        for key, fallback in steps():
            plane.restart(key, fallback)
            plane.wait_for_heartbeats()
            assert plane.is_signed_in(), (key, fallback)

        # Work continues as before: claims, reports and calls of a client.
        second = running.call("POST", f"{plane.url}/api/v1/jobs", running.token("client"), {"action": {
            "type": "script", "command": "true"}})["id"]  # fmt: skip
        done.touch()
        for one in (job, second):
            path = f"{plane.url}/api/v1/jobs/{one}"
            ended = eventually(lambda path=path: is_ended(running.call("GET", path, running.token("client"))))
            assert (ended["state"], ended["resubmissions"]) == ("COMPLETED", 0)
        assert plane.ask("select count(*) from jobs_attempt") == 2
        assert plane.ask("select count(*) from liveness_server where type = 'WORKER'") == 1
        assert plane.ask("select state from liveness_server where type = 'WORKER'") == "RUNNING"
        assert agent.poll() is None

        # The next server registers with the new token, and the agent was never restarted.
        with running.connected() as database:
            database.execute("delete from jobs_logline; delete from jobs_attempt")
            database.execute("delete from liveness_server where type = 'WORKER'")
        registered = "select count(*) from liveness_server s join liveness_apitoken t on t.id = s.token_id"
        eventually(lambda: plane.ask(f"{registered} where t.prefix = '{new[:11]}' and s.state = 'RUNNING'"))
        assert agent.poll() is None


def is_ended(job):
    time.sleep(0.1)
    return job if job["state"] in ("COMPLETED", "FAILED", "CANCELLED") else None
