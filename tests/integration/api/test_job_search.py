"""Search of jobs by a text in the API."""

import pytest

from jobs import scan_window

pytestmark = pytest.mark.django_db


@pytest.fixture
def found(api):
    viewer = api("viewer")
    return lambda query: [job["id"] for job in viewer.get(f"/jobs?{query}").json()["items"]]


def test_jobs_are_found_by_name_action_key_and_id(found, submit):
    one = submit(name="nightly export", tags=["a"])["id"]
    two = submit(action={"type": "script", "command": "make Report"})["id"]
    for word in ("EXPORT", one, one[:13], one[-12:]):
        assert found(f"q={word}") == [one], word
    assert found("q=report") == [two] and found("q=nothing") == []
    assert found("q=export&tag=a") == [one] and found("q=report&tag=a") == []


def test_a_search_goes_on_after_its_window(api, submit, monkeypatch):
    monkeypatch.setattr(scan_window, "SCAN_LIMIT", 2)
    first = submit(name="needle")["id"]
    for _ in range(3):
        submit()
    page = api("viewer").get("/jobs?q=needle").json()
    assert page["items"] == [] and page["next"]
    page = api("viewer").get(f"/jobs?q=needle&cursor={page['next']}").json()
    assert [job["id"] for job in page["items"]] == [first]


@pytest.mark.parametrize("word", ["x" * 201, "%00"])
def test_an_invalid_text_is_refused(api, word):
    assert api("viewer").get(f"/jobs?q={word}").status_code == 400
