"""Frame of the pages: sidebar, top bar, bottom bar, the search, and the frame of our own admin and of errors."""

import re

import pytest
from django.test import Client

from controlplane.console.sidebar import ENTRIES
from tests.support.people import employ

pytestmark = pytest.mark.django_db
HOME = "/admin/instance/"


def landmark(page, pattern):
    return re.search(pattern, page, re.DOTALL)[0]


@pytest.fixture
def shown(admin_client):
    return lambda path="": admin_client.get(path if path.startswith("/") else HOME + path).content.decode()


def test_the_sidebar_has_every_page_and_marks_the_current_one(shown):
    menu = landmark(shown("jobs/"), '<nav class="menu".*?</nav>')
    for entry in ENTRIES:
        assert entry.url and f'<span class="label">{entry.label.replace("&", "&amp;")}</span>' in menu
    assert re.findall(r'href="([^"]+)" aria-current="(\w+)"', menu) == [(f"{HOME}jobs/", "page")]


def test_a_page_below_an_entry_marks_it(shown, submit):
    job = submit()["id"]
    for page in (f"jobs/{job}/", f"jobs/{job}/log/", "jobs/errors/", f"jobs/cancel/?pick={job}"):
        assert f'href="{HOME}jobs/" aria-current="true"' in shown(page), page


def test_phones_get_a_bottom_bar_with_the_main_pages_and_more(shown):
    bar = landmark(shown(), '<nav class="bottom-bar".*?</nav>')
    words = re.findall(r"</svg>(\w+)", bar)
    assert words == ["Overview", "Servers", "Jobs", "Alerts", "More"]
    assert 'href="#menu"' in bar and 'id="menu"' in shown()


def test_the_top_bar_has_the_name_of_the_instance_and_its_colour(shown, monkeypatch):
    assert "<title>Overview | Control plane</title>" in shown()
    monkeypatch.setenv("CONSOLE_NAME", "night shift <1>")
    monkeypatch.setenv("CONSOLE_COLOR", "red")
    page = shown()
    assert "night shift &lt;1&gt;" in landmark(page, "<header.*?</header>") and 'class="app is-red"' in page
    monkeypatch.setenv("CONSOLE_COLOR", 'red"><script>')
    assert 'class="app"' in shown()


def test_the_own_admin_wears_the_shell_and_the_sign_in_has_no_sidebar(shown, client):
    for page in ("/admin/", "/admin/auth/user/", "/admin/liveness/apitoken/"):
        assert '<nav class="menu"' in shown(page), page
    assert 'href="/admin/instance/tokens/"' in landmark(shown("/admin/auth/user/"), '<nav class="menu".*?</nav>')
    page = Client().get("/admin/login/").content.decode()
    assert '<nav class="menu"' not in page and 'id="id_username"' in page


def test_no_page_has_inline_code_or_styles(shown):
    for page in ("", "jobs/", "search/?q=a", "/admin/", "/admin/login/"):
        assert not re.search(r"<style|<script(?![^>]*src=)| style=| on[a-z]+=\"", shown(page)), page


def test_errors_are_in_the_shell(admin_client, client):
    for path, status in ((f"{HOME}nowhere/", 404), ("/nowhere/", 404)):
        answer = admin_client.get(path)
        assert answer.status_code == status and '<nav class="menu"' in answer.content.decode()
    client.force_login(employ("liveness.view_server"))
    answer = client.get(f"{HOME}jobs/")
    assert answer.status_code == 403 and '<nav class="menu"' in answer.content.decode()


def test_a_fault_is_a_page_in_the_shell(admin_client, monkeypatch):
    def fail(*_, **__):
        raise ZeroDivisionError

    admin_client.raise_request_exception = False
    monkeypatch.setattr("controlplane.console.views.search.find_pages", fail)
    answer = admin_client.get(f"{HOME}search/")
    page = answer.content.decode()
    assert answer.status_code == 500 and "This is a fault of the control plane" in page
    assert all(f">{name}</span>" in page for name in ("Overview", "Servers", "Jobs"))


def found(client, word, **headers):
    page = client.get(f"{HOME}search/", {"q": word}, headers=headers).content.decode()
    return page if headers else landmark(page, "<main.*?</main>")


def test_the_search_finds_objects_pages_actions_and_error_codes(admin_client, worker, submit):
    server, job = worker(name="gpu-7"), submit(name="nightly export")["id"]
    for word, address in (
        ("gpu-7", f"servers/{server.id}/"), (str(server.id), f"servers/{server.id}/"), ("EXPORT", f"jobs/{job}/"),
        (job, f"jobs/{job}/"), (job[-12:], f"jobs/{job}/"), ("quaran", "quarantine/"),
        ("enter maint", "maintenance/enter/"), ("WORKER_CRASHED", "jobs/errors/?code=WORKER_CRASHED"),
    ):  # fmt: skip
        assert f'href="{HOME}{address}"' in found(admin_client, word), word
        assert f'data-href="{HOME}{address}"' in found(admin_client, word, **{"X-Jump": "1"}), word
    assert "Nothing matches" in found(admin_client, "zzz") and found(admin_client, "\0%_'\"<b>")


def test_the_search_finds_only_what_the_user_may_view(client, worker, submit):
    server, job = worker(name="export-1"), submit(name="export")["id"]
    client.force_login(employ("jobs.view_workerjob"))
    page = found(client, "export")
    assert job in page and str(server.id) not in page
    assert "maintenance" not in found(client, "maintenance").replace("“maintenance”", "").replace('"maintenance"', "")
