"""Every file that a page names is served without `collectstatic`, and gets a new address when it changes."""

import re

import pytest
from django.contrib.auth.models import User

from controlplane.serving import static_files

pytestmark = pytest.mark.django_db


def addresses(page: bytes) -> list[str]:
    return [address.decode() for address in re.findall(rb'(?:href|src)="(/static/[^"]+)"', page)]


def test_what_pages_name_is_there_and_may_be_kept_by_browsers(client):
    client.force_login(User.objects.create_superuser("reader"))
    for page in ("/admin/", "/admin/instance/", "/api/docs"):
        named = addresses(client.get(page).content)
        assert len(named) > 1, page
        for address in named:
            answer = client.get(address)
            assert answer.status_code == 200, address
            assert "max-age=86400" in answer["Cache-Control"]
            b"".join(answer.streaming_content)
    assert all("?v=" in address for address in addresses(client.get("/admin/instance/").content))


def test_another_content_has_another_address(tmp_path, monkeypatch):
    file = tmp_path / "a.css"
    monkeypatch.setattr(static_files, "find", lambda name: str(file))
    urls = []
    for text in ("a {}", "b {}"):
        file.write_text(text)
        static_files.content_version.cache_clear()
        urls.append(static_files.PackageFiles(base_url="/static/").url("a.css"))
    static_files.content_version.cache_clear()
    assert urls[0] != urls[1] and all(address.startswith("/static/a.css?v=") for address in urls)
