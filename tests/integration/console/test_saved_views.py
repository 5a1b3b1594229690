"""Saved views: a filter of a list gets a name, and is a link on the list."""

import json
import re

import pytest

pytestmark = pytest.mark.django_db
HOME = "/admin/instance/"


@pytest.fixture
def save(reader):
    def save(name, query="state=FAILED", page="jobs", **more):
        return reader.post(f"{HOME}views/save/", {"page": page, "name": name, "query": query, **more}, follow=True)

    return save


def views(reader, page="jobs"):
    shown = reader.get(f"{HOME}{page}/").content.decode()
    nav = re.search(r'aria-label="Saved views">(.*?)</nav>', shown, re.DOTALL)
    return re.findall(r'href="([^"]+)">([^<]+)<', nav[1]) if nav else []


def test_a_saved_view_is_a_link_on_its_list(reader, save):
    assert "View saved: Failed ones" in save("Failed  ones").content.decode()
    save("By tag", "tag=gpu&sort=oldest")
    assert views(reader) == [
        (f"{HOME}jobs/?tag=gpu&amp;sort=oldest", "By tag"), (f"{HOME}jobs/?state=FAILED", "Failed ones"),
    ]  # fmt: skip
    assert views(reader, "servers") == []
    save("Failed ones", "state=CANCELLED")
    save("By tag", delete="1")
    assert views(reader) == [(f"{HOME}jobs/?state=CANCELLED", "Failed ones")]


@pytest.mark.parametrize(
    ("name", "query", "page"),
    [
        ("", "a=1", "jobs"),
        ("x" * 61, "a=1", "jobs"),
        ("x", "", "jobs"),
        ("x", "a=1", "nowhere"),
        ("x", "a=" + "1" * 4000, "jobs"),
    ],
)
def test_an_invalid_view_is_not_saved(reader, save, name, query, page):
    assert save(name, query, page).status_code == 200
    assert views(reader) == []


@pytest.mark.parametrize("cookie", ["no", "[]", '{"jobs": 1}', json.dumps({"jobs": {"<b>": "//evil.example/"}})])
def test_a_changed_cookie_is_harmless(reader, cookie):
    user = reader.get(HOME).wsgi_request.user
    reader.cookies[f"views-{user.pk}"] = cookie
    assert all(url.startswith(f"{HOME}jobs/?") for url, _ in views(reader))
