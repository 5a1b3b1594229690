"""The wheel in separate environments: a control plane in any folder, and an agent without Django."""

import json
import re
import shutil
import subprocess
import sys
from contextlib import ExitStack

import pytest
import urllib3

from tests.support import wheel
from tests.support.data_dirs import forget, new_data_dir
from tests.support.processes import eventually, free_port

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def place():
    with new_data_dir() as data_dir:
        yield data_dir.parent


@pytest.fixture(scope="module")
def server(place):
    return wheel.install(place / "server")


@pytest.fixture(scope="module")
def agent(place):
    return wheel.install(place / "agent", only=wheel.OF_AGENTS)


@pytest.fixture
def home(place):
    """Make a home with a working folder. A module there has the name of one of our packages."""
    (place / "home" / "work").mkdir(parents=True)
    (place / "home" / "work" / "jobs.py").write_text("raise SystemExit('not these jobs')\n")
    yield place / "home"
    forget(place / "home" / ".local" / "share" / "controlplane")
    shutil.rmtree(place / "home")


def test_an_installed_control_plane_runs_the_job_of_an_agent_without_django(server, agent, home):
    port = free_port()
    url, api = f"http://127.0.0.1:{port}", urllib3.PoolManager(retries=False, timeout=10)

    def ask(path: str, token: str, **body: object) -> dict[str, object]:
        answer = api.request(
            "POST" if body else "GET", f"{url}/api/v1{path}", json=body or None,
            headers={"Authorization": f"Bearer {token}"},
        )  # fmt: skip
        assert answer.status < 300, answer.data
        return json.loads(answer.data)

    with ExitStack() as ends:
        plane = wheel.Running(
            str(server / "controlplane"), "standalone", "--workers", "1", "--port", str(port), home=home
        )
        ends.callback(plane.end)
        plane.wait_for(r"Open http://\S+/admin/instance/")
        plane.wait_for("Worker registered")
        login = api.request("GET", f"{url}/admin/login/")
        for address in re.findall(rb'(?:href|src)="(/static/[^"]+)"', login.data):
            assert api.request("GET", f"{url}{address.decode()}").status == 200, address
        command = [str(server / "controlplane"), "create_token", "--role"]
        worker, client = (
            wheel.run(*command, role, role, cwd=home / "work", env=wheel.environment(home)).strip()
            for role in ("worker", "client")
        )
        running = wheel.Running(
            str(agent / "controlplane-agent"), "--url", url, "--tags", "own", home=home, CONTROLPLANE_TOKEN=worker
        )
        ends.callback(running.end)
        running.wait_for("Worker registered")
        action = {"type": "script", "command": [sys.executable, "-c", "print(6 * 7)"]}
        job = ask("/jobs", client, action=action, tags=["own"])["id"]
        eventually(lambda: ask(f"/jobs/{job}", client)["state"] == "COMPLETED", why="the job is done")
    assert plane.process.returncode == 0, "".join(plane.lines)
    assert [path.name for path in (home / "work").iterdir()] == ["jobs.py"], "nothing is made in the working folder"
    assert (home / ".local" / "share" / "controlplane" / "secret_key").exists()


@pytest.mark.parametrize("words", [["create_token", "--role", "client", "me"], ["help"], ["sql"], ["check"]])
def test_a_command_without_effect_leaves_no_files(server, home, words):
    done = subprocess.run(
        [server / "controlplane", *words],
        cwd=home / "work",
        env=wheel.environment(home),
        capture_output=True,
        text=True,
    )
    assert (done.returncode == 0) == (words[0] != "create_token"), done.stderr
    assert words[0] != "create_token" or "Run `standalone` or `migrate` first" in done.stderr
    assert {path.name for path in home.rglob("*")} == {"work", "jobs.py"}


def test_an_agents_installation_names_the_extra_for_a_control_plane(agent, home):
    done = subprocess.run(
        [agent / "controlplane", "standalone"], cwd=home, env=wheel.environment(home), capture_output=True, text=True
    )
    assert done.returncode == 1 and "pip install 'controlplane[standalone]'" in done.stderr
    assert "\n" not in done.stderr.strip()
