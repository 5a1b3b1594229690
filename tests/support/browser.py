"""Real browser and a control plane of real processes. Violations of the pages' security policy are reported."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.support import services
from tests.support.processes import Fleet, fleet

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync",
]  # fmt: skip
MAKE_USERS = """
from django.contrib.auth.models import Permission, User
User.objects.create_superuser("ann", password="secret")
viewer = User.objects.create_user("vic", password="secret", is_staff=True)
viewer.user_permissions.set(Permission.objects.filter(codename__startswith="view_"))
"""
WITHIN = 60_000
"""Milliseconds that the browser waits for what a test expects. A step on a slow machine may take seconds."""
SETTINGS = {
    # The timeout leaves time for polls between overdue and DISCONNECTED.
    "LIVENESS_TIMEOUT": "10",
    # With fewer threads a few slow calls at once are refused, and the browser reports that as an error.
    "DATABASE_POOL_SIZE": "10",
    "WEB_THREADS": "8",
}
expect.set_options(timeout=WITHIN)  # pages have a default of their own


def script(command: str) -> dict[str, Any]:
    return {"type": "script", "command": command}


def step(key: str, command: str, *needs: str, **fields: Any) -> dict[str, Any]:
    return {"key": key, "action": script(command), "depends_on": list(needs), **fields}


class Site:
    """Control plane with a browser to view it."""

    def __init__(self, running: Fleet, browser: Browser, url: str) -> None:
        self.running, self.browser, self.url = running, browser, url
        self.complaints: list[str] = []
        self.signed_in: dict[str | None, Any] = {}
        """Cookies of each user who has signed in, because to check a password is slow."""
        self.client, self.worker, self.operator = map(running.token, ("client", "worker", "operator"))

    def open(self, user: str | None = "ann", **options: Any) -> Page:
        """Return a page in a new browser session of `user`. Errors of the browser are recorded."""
        kept = self.signed_in.get(user)
        standard = {"viewport": {"width": 1280, "height": 900}, "storage_state": kept}
        context = self.browser.new_context(**{**standard, **options})
        context.set_default_timeout(WITHIN)
        page = context.new_page()
        page.on(
            "console", lambda message: self.complain(message.text) if message.type in ("error", "warning") else None
        )
        page.on("pageerror", lambda error: self.complain(str(error)))
        page.on("dialog", lambda dialog: self.complain(f"a dialog: {dialog.message}"))
        page.on("request", lambda asked: self.asked(asked.url))
        if kept:
            self.go(page)
        elif user:
            page.goto(f"{self.url}/admin/login/?next=/admin/instance/")
            page.fill("#id_username", user)
            page.fill("#id_password", "secret")
            page.click("[type=submit]")
            page.wait_for_url("**/admin/instance/")
            self.signed_in[user] = page.context.storage_state()
        return page

    def complain(self, text: str) -> None:
        self.complaints.append(text)

    def asked(self, url: str) -> None:
        if not url.startswith((self.url, "data:")):
            self.complain(f"asked for {url}")

    def go(self, page: Page, path: str = "") -> None:
        page.goto(f"{self.url}/admin/instance/{path}")

    def submit(self, command: str, **job: Any) -> str:
        body = {"action": script(command), **job}
        return str(self.running.call("POST", f"{self.url}/api/v1/jobs", self.client, body)["id"])

    def begin(self, *steps: dict[str, Any], **fields: Any) -> str:
        """Submit an execution of these steps and return its id."""
        body = {"name": "nightly", "steps": list(steps), **fields}
        return str(self.running.call("POST", f"{self.url}/api/v1/executions", self.client, body)["id"])

    def execution(self, id: str) -> Any:
        return self.running.call("GET", f"{self.url}/api/v1/executions/{id}", self.client)

    def schedule(self, name: str) -> None:
        """Create a trigger that always starts an execution. Its workers need the tag `name`."""
        body = {
            "name": name,
            "interval_seconds": 3,
            "tags": [name],
            "action": script("echo '{\"fire\": true}'"),
            "execution": {"name": "scheduled", "steps": [step("a", "true", tags=[name])]},
        }
        self.running.call("POST", f"{self.url}/api/v1/triggers", self.operator, body)

    def job(self, id: str) -> Any:
        return self.running.call("GET", f"{self.url}/api/v1/jobs/{id}", self.client)

    def server_page(self, page: Page, name: str) -> str:
        """Return the path of the page of a server, by its name."""
        self.go(page, f"servers/?q={name}")
        address = page.locator("table.servers tbody th a", has_text=name).first.get_attribute("href")
        return str(address).removeprefix("/admin/instance/")

    def begin_batch(self, page: Page, tag: str, jobs: int = 300) -> str:
        """Start a batch that cancels more jobs than one request processes, and return the path of its page."""
        body = {"action": script("true"), "tags": [f"{tag}-batch"], "unmatched": "wait"}
        self.running.call("POST", f"{self.url}/api/v1/jobs", self.client, [body] * jobs)
        self.go(page, f"jobs/cancel/?tag={tag}-batch&all=1")
        page.fill("textarea[name=note]", "a batch")
        page.click("button.is-main")
        page.locator(".shares").wait_for()
        return page.url.partition("/admin/instance/")[2]


def poll_often(page: Page) -> None:
    """Poll every second from now on."""
    page.wait_for_load_state()  # the page's script handles the choice
    with page.expect_navigation():
        page.select_option("#poll-every", "1")


def act(page: Page, label: str, note: str) -> None:
    """Click the link to the preview and confirm there. The link of a dangerous action is behind *More actions*."""
    link = page.locator(".actions a", has_text=label)
    if not link.is_visible():
        page.get_by_text("More actions").click()
    link.click()
    page.fill("textarea[name=note]", note)
    page.click("button.is-main")


def findings(page: Page, *rules: str) -> list[str]:
    """Return serious findings of axe-core on a page, by all of its rules or by these."""
    options = {"resultTypes": ["violations"], **({"runOnly": list(rules)} if rules else {})}
    violations = Axe().run(page, options=options).response["violations"]
    return [
        f"{page.url}: {rule['id']}: {node['html'][:200]}: {re.sub(chr(10), ' ', node['failureSummary'] or '')}"
        for rule in violations
        if rule["impact"] in ("serious", "critical")
        for node in rule["nodes"]
    ]


@contextmanager
def site(folder: Path) -> Iterator[Site]:
    """Yield a control plane with a web server and an executor, but no worker."""
    chromium = services.program("chromium")
    with fleet(folder, **SETTINGS) as running, sync_playwright() as playwright:
        running.run("manage.py", "shell", "--command", MAKE_USERS)
        url = running.web()
        running.executor("executor", "--beat")
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield Site(running, browser, url)
        browser.close()
