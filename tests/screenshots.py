"""Writer of the README's pictures: `python -m tests.screenshots` takes them from the demo in a real browser.

Each picture is taken in both colour schemes, from a new control plane in a temporary folder, when it shows its subject.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import urllib3
from playwright.sync_api import Page, sync_playwright

from controlplane.embedded import postgres
from controlplane.standalone.parts import DEMO_TIMINGS
from tests.support.browser import FLAGS
from tests.support.processes import ROOT, eventually, free_port
from tests.support.services import program

FOLDER = ROOT / "docs" / "images"
SCHEMES = ("light", "dark")
WIDTH = 1280
TIMINGS = {**DEMO_TIMINGS, "LIVENESS_TIMEOUT": "12", "LIVENESS_TERMINATION_GRACE_PERIOD": "3"}
"""Timings with enough time between overdue and DISCONNECTED for two pictures."""


class Demo:
    """Running demo: its output, its API, and an administrator's browser."""

    token = ""

    def __init__(self, process: subprocess.Popen[bytes], url: str, log: Path, page: Page) -> None:
        self.process, self.url, self.log, self.page = process, url, log, page
        self.http = urllib3.PoolManager(timeout=10)

    def get(self, path: str) -> Any:
        answer = self.http.request(
            "GET", f"{self.url}/api/v1/{path}", headers={"Authorization": f"Bearer {self.token}"}
        )
        assert answer.status == 200, answer.data
        return answer.json()

    def wait_for(self, pattern: str, within: float = 90) -> str:
        def search() -> Any:
            assert self.process.poll() is None, self.log.read_text()
            return re.search(pattern, self.log.read_text())

        return str(eventually(search, within=within, why=pattern)[1])

    def go(self, path: str) -> None:
        self.page.goto(f"{self.url}/admin/instance/{path}")

    def take(self, name: str, height: int) -> None:
        """Save the upper part of the page in both schemes."""
        for scheme in SCHEMES:
            self.page.emulate_media(color_scheme=scheme)
            clip = {"x": 0, "y": 0, "width": WIDTH, "height": height}
            self.page.screenshot(path=FOLDER / f"{name}-{scheme}.png", clip=clip, animations="disabled")


@contextmanager
def demo() -> Iterator[Demo]:
    folder = Path(tempfile.mkdtemp(prefix="controlplane-screenshots-"))
    folder.chmod(0o755)  # PostgreSQL runs as another user than root
    port, log, data_dir = free_port(), folder / "log", folder / "var"
    command = [sys.executable, "manage.py", "standalone", "--demo", "--port", str(port), "--data-dir", str(data_dir)]
    env = {**os.environ, **TIMINGS, "PYTHONUNBUFFERED": "1"}
    env.pop("DATABASE_URL", None)
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=output, stderr=output, start_new_session=True)
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=program("chromium"), args=FLAGS)
            page = browser.new_page(viewport={"width": WIDTH, "height": 1600})
            page.add_init_script("localStorage.setItem('django.admin.navSidebarIsOpen', 'false')")
            one = Demo(process, f"http://127.0.0.1:{port}", log, page)
            one.wait_for(r"(Open) http")
            password = (data_dir / "admin_password").read_text().strip()
            one.token = (data_dir / "tokens" / "operator").read_text().strip()
            page.goto(f"{one.url}/admin/login/?next=/admin/instance/")
            page.fill("#id_username", "admin")
            page.fill("#id_password", password)
            page.click("[type=submit]")
            with page.expect_navigation():
                page.select_option("#poll-every", "1")
            yield one
            browser.close()
    finally:
        process.terminate()
        process.wait(30)
        postgres.PostgresServer(data_dir).stop()
        shutil.rmtree(folder)


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    with demo() as one:
        job = one.wait_for(r"/admin/instance/jobs/([0-9a-f-]{36})/")
        run = one.wait_for(r"/admin/instance/executions/([0-9a-f-]{36})/")
        one.wait_for(r"Attempt 2 is (RUNNING)")
        one.page.locator(".verdict li").first.wait_for()
        one.take("overview", 900)
        eventually(lambda: one.get(f"jobs/{job}")["finished_at"], within=90, why="its second attempt has ended")
        one.go(f"jobs/{job}/")
        one.take("job", 900)
        one.go(f"executions/{run}/")
        one.page.locator(".graph .box.s-RUNNING", has_text="print").wait_for()
        one.take("execution", 900)


if __name__ == "__main__":
    main()
