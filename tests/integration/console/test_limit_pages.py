"""The page of limits, and what the page of a job says of its limit."""

import pytest
from django.urls import reverse

from jobs.services import limits


@pytest.fixture
def limited(api, submit, worker, monkeypatch):
    """Set a rule, hold its only slot, and return the job that waits for it."""
    monkeypatch.setattr(limits, "settle_soon", limits.settle_turns)
    rule = {"running": 1, "starts": 5, "per_seconds": 60, "note": "small server"}
    assert api("operator").call("PUT", "/limits/customer:*", rule).status_code == 201
    submit(limits=["customer:42"], unmatched="wait")
    worker().hold()
    return submit(limits=["customer:42"], unmatched="wait")["id"]


def test_the_page_shows_the_keys_in_use_and_the_rules(reader, limited):
    page = reader.get(reverse("instance:limits")).content.decode()
    for text in ("customer:42", "customer:*", "small server", "5 in 60 s"):
        assert text in page


def test_the_page_explains_itself_while_there_are_no_limits(reader):
    assert "No rule limits a key yet" in reader.get(reverse("instance:limits")).content.decode()


def test_the_page_of_a_job_names_the_key_that_limits_it(reader, limited):
    page = reader.get(reverse("instance:job", args=[limited])).content.decode()
    assert "Limited:" in page
    assert "customer:42" in page
