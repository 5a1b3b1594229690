"""Pages in a project with its own admin site and settings."""

import pytest
from django.apps import apps
from django.contrib.auth.models import User

from controlplane.apps import INSTALLED
from tests.support.own_admin_urls import SECOND_FACTOR

PAGES = ["/plane/admin/instance/", "/plane/admin/instance/jobs/", "/plane/admin/instance/maintenance/enter/"]
POLL = {"HX-Request": "true"}


@pytest.fixture
def staff(client, db, settings):
    settings.ROOT_URLCONF = "tests.support.own_admin_urls"
    client.force_login(User.objects.create_superuser("ann"))
    return client


@pytest.mark.parametrize("page", PAGES)
def test_pages_admit_the_same_users_as_the_admin_of_the_project(staff, page):
    answer = staff.get(page)
    assert (answer.status_code, answer.url) == (302, f"/backoffice/login/?next={page}")


@pytest.mark.parametrize("page", PAGES)
def test_pages_link_back_to_the_admin_of_the_project(staff, page):
    session = staff.session
    session[SECOND_FACTOR] = True
    session.save()
    answer = staff.get(page)
    assert answer.status_code == 200
    assert "Back office" in answer.text and 'href="/backoffice/"' in answer.text


def test_a_poll_whose_session_has_ended_lets_the_page_lead_to_the_sign_in(client, db):
    answer = client.get("/admin/instance/", headers=POLL)
    assert (answer.status_code, answer["HX-Refresh"]) == (401, "true"), "a redirect may lead to another origin"
    assert client.get("/admin/instance/").url == "/admin/login/?next=/admin/instance/"


@pytest.mark.parametrize("name", [name for name in INSTALLED if not name.startswith("django")])
def test_the_default_auto_field_of_a_project_changes_none_of_our_tables(name):
    config = next(config for config in apps.get_app_configs() if config.name == name)
    assert vars(type(config))["default_auto_field"] == "django.db.models.BigAutoField"
