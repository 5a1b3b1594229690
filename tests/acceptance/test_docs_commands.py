"""The commands of the documentation, run as they stand on real processes.

A block runs in bash. Only addresses, ids and names that the page cannot know are replaced. Each block of shell code is
run here, or listed in NOT_RUN with its reason.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from controlplane.embedded.postgres_binaries import find_programs
from tests.support.pages import PAGES, shell_blocks
from tests.support.processes import ROOT, Fleet, beside, drop, eventually, fleet, free_port, server
from tests.support.services import Redis

pytestmark = pytest.mark.acceptance

NEEDS_INDEX = "needs a package index; test_wheel.py installs the wheel with its extras"
NOT_RUN = {
    ("README.md", "pip install"): NEEDS_INDEX,
    ("docs/how-to/install.md", "pip install"): NEEDS_INDEX,
    ("docs/how-to/protect-celery-workers.md", "pip install"): NEEDS_INDEX,
    (
        "docs/how-to/protect-celery-workers.md",
        "export CONTROLPLANE_URL",
    ): "the tutorial runs the same with a real address",
    (
        "docs/how-to/protect-celery-workers.md",
        "python -m controlplane",
    ): "test_celery_deaths.py runs it on a quarantine",
    ("docs/how-to/backup.md", "cp -a"): "copies the data directory of a home; test_data_dir.py uses such a copy",
    ("docs/how-to/docker.md", "docker build"): "needs Docker; test_deployment.py checks the Dockerfile",
    ("docs/how-to/docker.md", "cd deploy"): "needs Docker Compose; test_deployment.py checks the file",
    ("docs/how-to/kubernetes.md", "kubectl create"): "needs a cluster; test_deployment.py checks the manifests",
    (
        "docs/how-to/systemd.md",
        "useradd --system --home-dir /var/lib/controlplane ",
    ): "changes the users of the machine",
    ("docs/how-to/systemd.md", "systemd-run"): "needs systemd",
    ("docs/how-to/systemd.md", "useradd --system --home-dir /var/lib/controlplane-agent"): "changes the users, too",
    ("docs/how-to/run-django-tasks.md", "controlplane-agent"): "test_django_tasks.py runs such an agent in a project",
    ("docs/how-to/run-coroutines.md", "controlplane-agent"): "test_loop_pool.py runs such an agent",
    ("docs/how-to/run-jobs-in-containers.md", "controlplane-agent"): "needs Docker; test_containers.py has stand-ins",
    ("docs/how-to/run-several-steps.md", "controlplane restart ID"): "test_restarts.py restarts in these ways",
    ("docs/how-to/change-what-waits.md", "controlplane change ID"): "test_changes.py changes jobs in these ways",
    ("docs/how-to/change-what-waits.md", "controlplane begin-batch"): "test_changes.py begins such a batch",
    ("docs/how-to/set-deadlines.md", "curl -s localhost"): "test_deadlines.py submits such jobs",
    ("docs/how-to/runbook.md", "controlplane instance"): "reads only; test_client.py runs such commands",
    ("docs/how-to/hold-work.md", "controlplane hold"): "test_holds.py holds such work",
    ("docs/how-to/scale-workers-by-queue.md", "controlplane queues"): "test_queues.py lists queues",
    ("docs/how-to/scale-workers-by-queue.md", "controlplane servers"): "needs Kubernetes",
    ("docs/how-to/ask-people.md", "controlplane answer"): "test_approvals.py answers in this way",
    ("docs/how-to/wait-in-an-execution.md", "controlplane send-signal"): "test_signals.py sends such a signal",
    ("docs/how-to/backfill-a-schedule.md", "controlplane backfill"): "test_backfill_commands.py begins such backfills",
    ("docs/how-to/submit-work-only-once.md", "controlplane submit"): "test_unique_jobs.py submits such jobs",
    ("docs/how-to/limit-jobs.md", "controlplane submit"): "test_limits.py submits such jobs",
    ("docs/how-to/limit-jobs.md", "controlplane set-limit stripe"): "test_command.py sets such rules",
    ("docs/how-to/limit-jobs.md", "controlplane set-limit action"): "test_rules_by_content.py sets such rules",
    ("docs/how-to/limit-jobs.md", "controlplane set-limit namespace"): "test_command.py sets such quotas",
    ("docs/how-to/share-workers-fairly.md", "controlplane set-limit"): "test_command.py sets such rules",
    ("docs/how-to/use-a-read-replica.md", "DATABASE_READ_URL="): "test_read_replica.py sets it for a real replica",
    ("docs/how-to/use-pgbouncer.md", "DATABASE_URL="): "test_pgbouncer.py sets it for a real PgBouncer",
    ("docs/tutorial/celery.md", "$ mkdir orders"): NEEDS_INDEX,
    ("docs/tutorial/celery.md", "$ controlplane standalone"): "test_standalone.py runs it",
    ("docs/tutorial/django.md", "$ mkdir mysite"): NEEDS_INDEX,
    (
        "docs/tutorial/django.md",
        "$ python manage.py check",
    ): "test_host_project.py and test_django_6.py run such a project",
    ("docs/tutorial/django.md", "$ . venv/bin/activate\n$ celery"): "a Celery worker of such a project, as above",
    ("docs/tutorial/django.md", "$ . venv/bin/activate\n$ curl"): "a probe of such a project, as above",
    ("docs/tutorial/django.md", "$ python manage.py create_token"): "test_django_tasks.py runs such agents",
    ("docs/tutorial/django.md", '$ python manage.py shell -v0 -c "from'): "test_django_tasks.py enqueues such tasks",
    ("docs/tutorial/django.md", "$ kill"): "test_django_tasks.py kills such an agent",
    ("docs/tutorial/django.md", '$ python manage.py shell -v0 -c "\n'): "test_django_tasks.py reads such results",
}
READ_ID = """python -c 'import json, sys; print(json.load(sys.stdin)["id"])'"""
RUN: set[tuple[str, str]] = set()
PROGRAMS = find_programs(None)
DEFAULTS = {"LIVENESS_TIMEOUT": "45", "LIVENESS_HEARTBEAT_INTERVAL": "3", "LIVENESS_STALENESS_MULTIPLIER": "10"}
"""The documentation is for the default intervals."""
SECRET = "whsec_" + "MTIzNDU2Nzg5MDEyMzQ1Njc4OTAxMjM0"


def block(page: str, start: str, **replaced: str) -> str:
    """Return the block of a page that starts so, and note that it is run. Of a console, only what is typed."""
    (found,) = (block for block in shell_blocks(ROOT / page) if block.text.startswith(start))
    RUN.add((page, found.text))
    text = found.text
    if text.startswith("$ "):
        text = "\n".join(line[2:] for line in text.splitlines() if line.startswith("$ ")) + "\n"
    for old, new in replaced.items():
        assert old in text, f"{page}: {start}: {old}"
        text = text.replace(old, new)
    return text


def how_to(name: str, start: str, **replaced: str) -> str:
    return block(f"docs/how-to/{name}.md", start, **replaced)


def id_of(command: str) -> str:
    """Return bash that sets ID to the id in the JSON that a command prints."""
    return f"ID=$({command.rstrip()} | tee /dev/stderr | {READ_ID})\n"


def prefix_of(command: str) -> str:
    """Return bash that sets PREFIX to the visible part of the token that a command prints."""
    return f"PREFIX=$({command.rstrip()})\nPREFIX=${{PREFIX:0:11}}\n"


def waits_for(condition: str) -> str:
    """Return bash that waits for a condition, at most two minutes."""
    return f"{{ set +x; }} 2>&-; for i in $(seq 600); do {condition} && break; sleep 0.2; done; set -x\n{condition}\n"


JOBS = "".join(
    [
        how_to("connect-a-worker", "WORKER_TOKEN="),
        how_to("connect-a-worker", "CONTROLPLANE_TOKEN=").rstrip() + " --name worker-1 &\nAGENT=$!\n",
        how_to("submit-a-job", "CLIENT_TOKEN="),
        id_of(how_to("submit-a-job", "curl -s localhost:8000/api/v1/jobs -H")),
        how_to("submit-a-job", "curl -s localhost:8000/api/v1/jobs/ID", ID="$ID"),
        how_to(
            "submit-a-job", "export", **{" ID ": " $ID ", "controlplane top\n": "timeout 5 controlplane top || true\n"}
        ),
        "controlplane undrain worker-1 --note again\n",
        id_of(how_to("run-several-steps", "cat >").replace("sleep 15", "sleep 1")),
        how_to("run-several-steps", "curl", **{"/ID": "/$ID"}),
        how_to("schedule-executions", "OPERATOR_TOKEN="),
        "controlplane submit --tag gpu --follow 'exit 1' || true\n",
        how_to("act-on-many", "controlplane begin-batch").rstrip() + " || [ $? = 1 ]\n",  # they fail again
        how_to("write-a-worker-in-another-language", "api()", **{"kill %1": "kill %2"}),
        "kill $AGENT; wait $AGENT\n",
    ]
)
TOKENS = "".join(
    [
        prefix_of(how_to("connect-a-worker", "controlplane create_token")),
        how_to("connect-a-worker", "controlplane revoke_token", cp_AbCdEfGh="$PREFIX"),
        prefix_of(how_to("keys", "controlplane create_token")),
        how_to("keys", "controlplane revoke_token", cp_AbCdEfGh="$PREFIX"),
        how_to("namespaces", "controlplane create_token"),
        how_to("protect-celery-workers", "controlplane create_token"),
        how_to("connect-a-worker", "controlplane()", **{".venv/bin/python": "python"}),
        "controlplane check\ncontrolplane-agent --version\n",
    ]
)
README = "".join(
    [
        block("README.md", "export CONTROLPLANE_URL=http://127.0.0.1:8000\nCONTROLPLANE_TOKEN=").rstrip()
        + " &\nAGENT=$!\n",
        block("README.md", "export CONTROLPLANE_URL=http://127.0.0.1:8000\nexport CONTROLPLANE_TOKEN="),
        "kill $AGENT; wait $AGENT\n",
    ]
)
ALERTS = how_to("get-alerts", "controlplane alerts ")
BACKUP = how_to("backup", "pg_dump") + "DATABASE_URL=$COPY\n" + how_to("backup", "pg_restore")
PROBE = how_to("check-a-machine", "controlplane-agent").rstrip() + " --name probed &\nAGENT=$!\n"
CHECKPOINT = how_to("keep-checkpoints", 'echo "0.4')
POD = how_to("keep-checkpoints", "row=")
WEB = how_to("run-on-many-machines", "granian").rstrip() + " --port $PORT &\n"

CELERY_TUTORIAL = "docs/tutorial/celery.md"
PACKING = "grep packing worker-*.log"
JOB = f"controlplane job $(controlplane jobs --json | head -1 | {READ_ID})"
CELERY = "".join(
    [
        "unset CELERY_BROKER_URL\n",  # it is the control plane's
        block(
            CELERY_TUTORIAL,
            "$ cd orders",
            **{"cd orders && . venv/bin/activate": ":", "worker-1@": "$NAME-1@", "worker-2@": "$NAME-2@"},
        ),
        waits_for("[ $(cat worker-*.log | grep -c 'Worker registered') = 2 ]"),
        block(CELERY_TUTORIAL, "$ python -c", **{f"{PACKING}\n": waits_for(PACKING)}),
        "N=$(grep -l packing worker-*.log | tr -dc 12)\n",
        block(CELERY_TUTORIAL, "$ kill", **{"worker-2@": "$NAME-$N@"}),
        waits_for("grep succeeded worker-$((3 - N)).log"),
        block(CELERY_TUTORIAL, "$ export CONTROLPLANE_TOKEN", **{"controlplane job 2e7759fe0dfb": JOB}),
    ]
)


class Shell:
    """A bash with the programs of the documentation, beside a control plane."""

    def __init__(self, plane: Fleet, url: str, folder: Path) -> None:
        self.plane, self.url, self.folder = plane, url, folder
        programs = folder / "bin"
        programs.mkdir()
        python = sys.executable
        for name, command in {
            "controlplane": f"{python} -m controlplane",
            "controlplane-agent": f"{python} -m controlplane.agent --runtimes '' --poll 0.2",
            "manage.py": f"{python} {ROOT}/manage.py",
            "python": python,
            "granian": f"{python} -m granian",
            "celery": f"{python} -m celery",
        }.items():
            (programs / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
            (programs / name).chmod(0o755)
        self.env = plane.env | {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "CONTROLPLANE_RUNTIME_DIR": str(folder / "run"),
        }
        self.env.pop("DJANGO_SETTINGS_MODULE", None)  # of the tests; a Celery worker would take it for its own project

    def run(self, script: str, **env: str) -> str:
        """Run a script to its end, and return what it printed."""
        address = self.url.removeprefix("http://")
        script = re.sub(r"(127\.0\.0\.1|localhost):8000", address, script)
        log = self.folder / "output"
        with log.open("wb") as output:
            process = subprocess.Popen(
                ["bash", "-xeuo", "pipefail", "-c", script],
                cwd=self.folder,
                env=self.env | env,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        try:
            status: int | str = process.wait(400)
        except subprocess.TimeoutExpired:
            status = "it hangs"
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        printed = log.read_text(errors="replace")
        logs = "\n".join(f"--- {path.name}\n{path.read_text()[-3000:]}" for path in self.folder.glob("*.log"))
        assert status == 0, f"{status}: {printed[-8000:]}\n{logs}"
        return printed


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Fleet, str]]:
    with fleet(tmp_path_factory.mktemp("plane"), CELERY_BROKER_URL="filesystem://", **DEFAULTS) as one:
        url = one.web()
        one.executor("executor", "--beat")
        yield one, url


@pytest.fixture
def shell(plane: tuple[Fleet, str], tmp_path: Path) -> Shell:
    return Shell(*plane, tmp_path)


def test_every_block_of_shell_code_is_run_or_listed_with_its_reason():
    listed = set(NOT_RUN)
    for page in PAGES:
        for found in shell_blocks(page):
            reasons = [key for key in listed if key[0] == found.page and found.text.startswith(key[1])]
            assert len(reasons) + ((found.page, found.text) in RUN) == 1, f"{found.page}: {found.first_line}"
            listed -= set(reasons)
    assert not listed, "these blocks are not there"


def test_extras_that_the_documentation_installs_exist():
    project = (ROOT / "pyproject.toml").read_text()
    extras = set(",".join(re.findall(r"controlplane\[([\w,]+)\]", "".join(p.read_text() for p in PAGES))).split(","))
    assert {"server", "standalone", "celery"} <= extras
    assert not [extra for extra in extras if not re.search(rf"^{extra} = \[", project, re.MULTILINE)]


def test_jobs_executions_triggers_and_workers_by_hand_work_as_documented(shell):
    output = shell.run(JOBS)
    assert "hello" in output and '"name": "hello"' in output.replace('":"', '": "')
    assert '"accepted":true' in output.replace(" ", "")


def test_tokens_are_made_and_revoked_as_documented(shell):
    assert "controlplane" in shell.run(TOKENS)


def test_the_commands_of_the_readme_run_a_job(shell):
    assert "hello from attempt 1" in shell.run(README)


def test_alerts_are_tested_and_muted_as_documented(shell):
    got: list[Any] = []

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Hook) as hook:
        Thread(target=hook.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{hook.server_port}/"
        shell.run(
            ALERTS, ALERTS_WEBHOOK_URLS=address, ALERTS_WEBHOOK_SECRET=SECRET, ALERTS_WEBHOOK_ALLOW_PRIVATE="true"
        )
        hook.shutdown()
    assert any(b'"test"' in body for body in got)


def test_a_backup_is_made_and_restored_as_documented(shell):
    server("create database documented_copy")
    try:
        shell.run(BACKUP, COPY=beside("documented_copy"), PATH=f"{PROGRAMS}:{shell.env['PATH']}")
    finally:
        drop(beside("documented_copy"))


def test_a_probe_cordons_a_worker_as_documented(shell):
    fit = waits_for('controlplane servers --json | grep probed | grep -q "\\"cordoned\\": *true"')
    env = {"CONTROLPLANE_URL": shell.url, "CONTROLPLANE_TOKEN": shell.plane.token("worker")}
    token = shell.plane.token("operator")
    script = (
        PROBE.replace("/data", "/no/such/data")
        + f"export CONTROLPLANE_TOKEN={token}\n{fit}kill $AGENT; wait $AGENT || true\n"
    )
    shell.run(script, **env)


def test_a_script_reports_progress_and_keeps_a_checkpoint_as_documented(shell):
    one, url = shell.plane, f"{shell.url}/api/v1"
    one.agent("keeper", shell.url, "--tags", "keeper")
    token = one.token("client")
    action = {"type": "script", "command": CHECKPOINT + "sleep 2"}
    body = {"action": action, "tags": ["keeper"], "unmatched": "wait"}  # it may register a moment later
    job = one.call("POST", f"{url}/jobs", token, body)["id"]
    ended = eventually(lambda: (found := one.call("GET", f"{url}/jobs/{job}", token))["finished_at"] and found)
    assert (ended["state"], ended["checkpoint"]) == ("COMPLETED", 1)


def test_a_pod_reports_by_lines_as_documented(shell):
    printed = shell.run(POD)
    assert "\n::progress 0.4 copying\n" in printed and "\n::checkpoint 1\n" in printed
    assert "\n::checkpoint 8\n" in shell.run(POD, JOB_CHECKPOINT_VALUE="7")


def test_a_web_process_starts_as_documented(shell):
    port = str(free_port())
    probe = waits_for(f"curl -sf http://127.0.0.1:{port}/readyz")
    shell.run(WEB + probe + "kill %1; wait %1 || true\n", PORT=port)


def test_the_celery_tutorial_moves_a_task_to_the_other_worker(shell):
    (orders,) = (code for code in re.findall(r"```python\n(.*?)```", (ROOT / CELERY_TUTORIAL).read_text(), re.DOTALL))
    with Redis(shell.folder) as redis:
        text = orders.replace("redis://localhost:6379/0", redis.url).replace("sleep(30)", "sleep(10)")
        (shell.folder / "orders.py").write_text(text)
        output = shell.run(CELERY, NAME=f"tutorial-{os.getpid()}")
    states = re.findall(r"^\d? +([A-Z]+) +20", output, re.MULTILINE)
    assert states[:6] == ["PENDING", "CLAIMED", "RUNNING", "RESUBMITTED", "CLAIMED", "RUNNING"]
