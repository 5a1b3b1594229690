"""Texts name a command as it can be run where the control plane is installed."""

from django.template import Context, Template
from django.test import override_settings

from controlplane.core.program import program
from liveness.services.signing_key import AnotherKey

EMPTY_PAGE = "{% include 'admin/instance/_no_server.html' %}{% include 'admin/instance/_no_job.html' %}"


def test_a_site_of_its_own_has_another_program_than_a_django_project():
    for site, name in (("controlplane", "controlplane"), ("mysite", "python manage.py")):
        with override_settings(WSGI_APPLICATION=f"{site}.wsgi.application"):
            assert program() == name
            assert f"`{name} replace_signing_key`" in str(AnotherKey("a", "b"))
            page = Template(EMPTY_PAGE).render(Context({"url": "http://x"}))
            assert page.count(f"$({name} create_token") == 2
