"""Scripted control plane that follows the API contract, and an agent process to test with it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.support.processes import ROOT, WITHOUT_RICH

DEADLINE = 60.0
ENDS = ("COMPLETED", "FAILED", "CANCELLED", "RELEASED")


def eventually(condition: Callable[[], Any], what: str = "it", within: float = DEADLINE) -> Any:
    """Poll until `condition()` is true, and return its result."""
    until = time.monotonic() + within
    while not (result := condition()):
        assert time.monotonic() < until, f"{what} did not happen within {within} s"
        time.sleep(0.01)
    return result


def alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


class Refuse(Exception):
    def __init__(self, status: int, code: str = "", detail: str = "no", **more: Any) -> None:
        self.status = status
        self.body = {"type": "about:blank", "title": "no", "status": status, "detail": detail, "code": code, **more}


class Foreign(Exception):
    """Answer of another server, such as a proxy in front of the control plane."""

    def __init__(self, status: int, kind: str, content: bytes) -> None:
        self.status, self.kind, self.content = status, kind, content


class ControlPlane:
    """Scripted control plane. `script[call]` is called with the body, and may raise Refuse or return a response."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.reports: list[dict[str, Any]] = []  # in the order of acceptance
        self.superseded: set[str] = set()  # attempts whose reports are refused
        self.refused: list[dict[str, Any]] = []  # these reports
        self.registrations: list[str] = []  # servers
        self.instances: dict[str, str] = {}  # their servers
        self.tokens: set[str] = set()  # tokens of calls
        self.pending: list[dict[str, Any]] = []
        self.claims: dict[str, list[dict[str, Any]]] = {}
        self.heartbeat: dict[str, Any] = {}  # overrides of the default answer
        self.config: dict[str, Any] = {"heartbeat_interval_seconds": 0.1, "timeout_seconds": 2.0}
        self.fence_after: float | None = 60.0
        self.down = False
        self.script: dict[str, Callable[[dict[str, Any]], dict[str, Any] | None]] = {}
        self.lock = threading.RLock()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}"

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()

    def submit(
        self, action: dict[str, Any] | str, payload: Any = None, timeout: float | None = None, **job_fields: Any
    ) -> str:
        """Add a job to claim, and return the attempt's id. A text is a local script."""
        if isinstance(action, str):
            action = {"type": "script", "runner": "local", "command": action}
        attempt = str(uuid.uuid4())
        job = {"id": str(uuid.uuid4()), "kind": "TASK", "action": action, "payload": payload}
        job |= {"timeout_seconds": timeout, "execution": None, "step": None, **job_fields}
        with self.lock:
            self.pending.append({"id": attempt, "number": 1, "job": job})
        return attempt

    def events(self, attempt: str) -> list[str]:
        with self.lock:
            return [report["event"] for report in self.reports if report["attempt"] == attempt]

    def final(self, attempt: str) -> dict[str, Any] | None:
        with self.lock:
            final_reports = [
                report for report in self.reports if report["attempt"] == attempt and report["event"] in ENDS
            ]
            return final_reports[-1] if final_reports else None

    def states(self) -> list[str]:
        """Return the states in heartbeats, without repetitions."""
        with self.lock:
            states = [body.get("state") for call, body in self.calls if call == "heartbeat"]
        return [str(state) for n, state in enumerate(states) if n == 0 or states[n - 1] != state]

    def count(self, call: str) -> int:
        with self.lock:
            return sum(name == call for name, _ in self.calls)

    def lower_fence(self, seconds: float) -> None:
        """Lower the fence, and wait until the agent knows it. At first it must be long, so that its code can begin."""
        with self.lock:
            self.fence_after = seconds
            beats = self.count("heartbeat")
        eventually(lambda: self.count("heartbeat") > beats + 2, "the agent knows the fence")

    def answer(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        call = path.rpartition("/")[2].partition("?")[0]
        with self.lock:
            self.calls.append((call, body))
            if call in self.script and (scripted := self.script[call](body)) is not None:
                return 200, scripted
            if call == "servers":
                return 201, self._register(body)
            if path.split("/")[-2] != self.registrations[-1]:
                raise Refuse(410, "server_unknown")
            return 200, getattr(self, f"_{call}")(body)

    def _register(self, body: dict[str, Any]) -> dict[str, Any]:
        if body["instance_id"] not in self.instances:
            self.instances[body["instance_id"]] = str(uuid.uuid4())
            self.registrations.append(self.instances[body["instance_id"]])
        config = {
            "termination_grace_period_seconds": 5.0,
            "worker_task_restart_strategy": "AFTER_TERMINATION_GRACE_PERIOD",
            "claimer_heartbeat_interval_seconds": 0.1,
            "runner_heartbeat_interval_seconds": 0.1,
        }
        config |= self.config | body.get("config", {})
        id = self.instances[body["instance_id"]]
        return {
            "id": id, "token": f"of {id}", "state": "CREATED", "fence_after_seconds": self.fence_after, "config": config
        }  # fmt: skip

    def _heartbeat(self, body: dict[str, Any]) -> dict[str, Any]:
        return {
            "state": body.get("state"),
            "heartbeat_interval_seconds": self.config["heartbeat_interval_seconds"],
            "fence_after_seconds": self.fence_after,
            "cancel": [],
            "lost": [],
            "cordoned": False,
            "maintenance": False,
            "drain": None,
        } | self.heartbeat

    def _hints(self, body: dict[str, Any]) -> dict[str, Any]:
        raise Refuse(404, "not_found")

    def _claims(self, body: dict[str, Any]) -> dict[str, Any]:
        if body["request_id"] not in self.claims:
            most = body["limit"] + body.get("ahead", 0)
            self.claims[body["request_id"]] = self.pending[:most]
            del self.pending[:most]
        return {"attempts": self.claims[body["request_id"]]}

    def _reports(self, body: dict[str, Any]) -> dict[str, Any]:
        results = []
        for report in body["reports"]:
            if report["attempt"] in self.superseded:
                self.refused.append(report)
                refusal = {"accepted": False, "code": "attempt_superseded", "state": "REQUEUED"}
                results.append({"attempt": report["attempt"], "replayed": False} | refusal)
                continue
            replayed = report in self.reports
            if not replayed:
                self.reports.append(report)
            results.append(
                {"attempt": report["attempt"], "accepted": True, "replayed": replayed, "state": "", "code": None}
            )
        return {"results": results}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        plane = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_GET(self) -> None:
                self.respond({})

            def do_POST(self) -> None:
                self.respond(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

            def respond(self, body: dict[str, Any]) -> None:
                plane.tokens.add(self.headers.get("Authorization", "").removeprefix("Bearer "))
                if plane.down:
                    self.close_connection = True
                    return
                kind = "application/json"
                answer: Any
                try:
                    assert self.path.startswith("/api/v1/")
                    status, answer = plane.answer(self.path, body)
                except Refuse as refused:
                    status, answer, kind = refused.status, refused.body, "application/problem+json"
                except Foreign as foreign:
                    status, answer, kind = foreign.status, foreign.content, foreign.kind
                data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                pass

        return Handler


class Agent:
    """Agent in a separate process: `python -m controlplane.agent`."""

    def __init__(self, plane: ControlPlane, folder: Path, *arguments: str) -> None:
        self.log_file = folder / f"agent-{uuid.uuid4().hex[:6]}.log"
        (folder / "tmp").mkdir(exist_ok=True)
        self.environment = {
            **os.environ,
            "TMPDIR": str(folder / "tmp"),
            "CONTROLPLANE_RUNTIME_DIR": str(folder / "run"),
            "CONTROLPLANE_STATE_DIR": str(folder / "state"),
            "CONTROLPLANE_TOKEN": "secret",
            "PYTHONPATH": os.pathsep.join([WITHOUT_RICH, str(ROOT), str(folder)]),
        }
        command = [sys.executable, "-m", "controlplane.agent", "--url", plane.url, "--poll", "0.05", "--name", "a/1"]
        command += ["--runtimes", ""]  # independent of this machine
        with self.log_file.open("w") as log:
            self.process = subprocess.Popen(
                [*command, "--concurrency", "4", "--log-level", "debug", "--no-fast-recovery", *arguments],
                env=self.environment,
                stderr=log,
                cwd=folder,
            )

    @property
    def log(self) -> str:
        return self.log_file.read_text()

    def check(self) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "controlplane.agent", "--check", "--name", "a/1"],
            env=self.environment,
            capture_output=True,
            text=True,
        )

    def exits(self) -> int:
        return self.process.wait(timeout=DEADLINE)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait()
