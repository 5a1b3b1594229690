"""Connections of the web server: the kernel holds back silent ones, and none keeps the server from ending."""

import socket
import threading
import time
import uuid
from urllib.parse import urlsplit

import psutil
import pytest
import urllib3

from controlplane.standalone.parts import SERVING
from tests.support.processes import eventually, fleet

pytestmark = pytest.mark.acceptance
HEADER_TIMEOUT = int(SERVING[SERVING.index("--http1-header-read-timeout") + 1]) / 1000
"""Seconds for which granian waits for an idle connection that its client keeps open."""
KILL_TIMEOUT = HEADER_TIMEOUT + 5
"""Seconds after which granian kills its worker process. The calls would keep it for longer."""
PROBE = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"


def connect(url: str, sent: bytes = b"") -> socket.socket:
    address = urlsplit(url)
    connection = socket.create_connection((address.hostname, address.port), timeout=10)
    connection.sendall(sent)
    return connection


def test_the_web_server_ends_promptly_while_calls_wait_and_idle_connections_are_open(tmp_path):
    with fleet(tmp_path) as running:
        url = running.web("web", "--workers-kill-timeout", f"{KILL_TIMEOUT:g}")
        body = {"type": "WORKER", "name": "idle", "instance_id": str(uuid.uuid4()), "tags": ["script"]}
        server = running.call("POST", f"{url}/api/v1/servers", running.token("worker"), {**body, "max_concurrent": 1})
        running.call("POST", f"{url}/api/v1/servers/{server['id']}/heartbeat", server["token"], {"state": "RUNNING"})
        waiting_job = {"action": {"type": "script", "command": "true"}, "tags": ["nobody"], "unmatched": "wait"}
        job = running.call("POST", f"{url}/api/v1/jobs", running.token("client"), waiting_job)
        answers = {}

        def ask(name: str, path: str, token: str) -> None:
            headers = {"Authorization": f"Bearer {token}"}
            answers[name] = urllib3.request("GET", f"{url}/api/v1{path}", headers=headers, retries=False, timeout=60)

        calls = [
            threading.Thread(target=ask, args=("hint", f"/servers/{server['id']}/hints?wait=30", server["token"])),
            threading.Thread(target=ask, args=("job", f"/jobs/{job['id']}?wait=30", running.token("client"))),
        ]
        for call in calls:
            call.start()
        opened = time.monotonic()
        silent = [connect(url) for _ in range(5)]
        kept_alive = [connect(url, PROBE) for _ in range(20)]
        assert all(one.recv(1000).startswith(b"HTTP/1.1 200") for one in kept_alive)
        half_heads = [connect(url, b"GET /livez HTTP/1.1\r\nHost:") for _ in range(5)]
        time.sleep(1)  # the calls wait by now
        assert not answers

        process = running.processes["web"]
        process.terminate()
        assert process.wait(30) == 0
        took = time.monotonic() - opened
        assert "refused to gracefully stop" not in (tmp_path / "web.log").read_text()
        assert took < HEADER_TIMEOUT
        for call in calls:
            call.join(10)
        assert {name: answer.status for name, answer in answers.items()} == {"hint": 200, "job": 200}
        for one in [*silent, *kept_alive, *half_heads]:
            one.close()


def test_the_kernel_holds_back_connections_that_send_nothing(tmp_path):
    with fleet(tmp_path) as running:
        url = running.web("web")
        [worker] = psutil.Process(running.processes["web"].pid).children()

        def clients() -> set[int]:
            return {one.raddr.port for one in worker.net_connections("tcp") if one.status == "ESTABLISHED"}

        with connect(url, PROBE) as kept_alive:
            assert kept_alive.recv(1000).startswith(b"HTTP/1.1 200")
            assert kept_alive.getsockname()[1] in clients()

        def is_held_back() -> bool:
            with connect(url) as silent:
                time.sleep(0.5)  # without limits it would be accepted by now
                return silent.getsockname()[1] not in clients()

        eventually(is_held_back, why="the limits are set a moment after the start")
