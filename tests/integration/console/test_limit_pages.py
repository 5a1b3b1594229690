"""The page of limits, and the limit on the page of a job."""

import pytest
from django.urls import reverse

from jobs.choices import HoldOf
from jobs.models import LimitRule
from jobs.services import holds
from tests.support.operators import actions


@pytest.fixture
def limited(api, submit, worker, settled):
    """Set a rule, hold its only slot, and return the job that waits for it."""
    rule = {"running": 1, "starts": 5, "per_seconds": 60, "note": "small server"}
    assert api("operator").call("PUT", "/limits/customer:*", rule).status_code == 201
    assert api("operator").call("PUT", "/limits/tenant:*", {"fair": True, "weight": 3}).status_code == 201
    submit(limits=["customer:42"], unmatched="wait")
    worker().hold()
    return submit(limits=["customer:42"], unmatched="wait")["id"]


def test_the_page_shows_the_keys_in_use_and_the_rules(reader, limited):
    page = reader.get(reverse("instance:limits")).content.decode()
    for text in ("customer:42", "customer:*", "small server", "5 in 60 s", "Yes, weight 3"):
        assert text in page


def test_the_page_explains_itself_while_there_are_no_limits(reader):
    assert "No rule limits a key yet" in reader.get(reverse("instance:limits")).content.decode()


def test_the_page_of_a_job_names_the_key_that_limits_it(reader, limited):
    page = reader.get(reverse("instance:job", args=[limited])).content.decode()
    assert "Limited:" in page and "Limited by customer:42." in page and "Waiting for a worker" not in page
    assert "customer:42" in page
    assert ">Limited by customer:42</small>" in reader.get(reverse("instance:jobs")).content.decode()


@pytest.fixture
def operator(staff):
    return staff("change_maintenance", checks_csrf=False)


GIVEN = {"pattern": "stripe", "namespace": "default", "running": "2", "starts": "", "per_seconds": "", "note": "small"}


def test_a_rule_is_set_changed_and_deleted_by_forms(operator):
    form = reverse("instance:limit_set")
    assert operator.post(form, GIVEN).status_code == 302
    rule = LimitRule.objects.get()
    assert (rule.pattern, rule.running, rule.starts, rule.note) == ("stripe", 2, None, "small")
    filled = operator.get(f"{form}?pattern=stripe&namespace=default").content.decode()
    assert 'value="2"' in filled and "small" in filled
    changed = {**GIVEN, "running": "", "starts": "10", "per_seconds": "60"}
    assert operator.post(form, changed).status_code == 302
    rule.refresh_from_db()
    assert (rule.running, rule.starts, rule.per_seconds) == (None, 10, 60)
    gone = f"{reverse('instance:limit_delete')}?pattern=stripe&namespace=default"
    assert "Delete the limit of stripe" in operator.get(gone).content.decode()
    assert operator.post(gone, {"note": ""}).status_code == 302
    assert not LimitRule.objects.exists() and operator.get(gone).status_code == 404
    assert actions(subject_type="limit") == ["set_limit", "set_limit", "delete_limit"]


def test_the_form_begins_with_its_first_field_and_sets_nothing_by_itself(operator):
    page = operator.get("/admin/instance/limits/set/").content.decode()
    assert "autofocus" not in page, "the note is its last field"
    assert ">Not set</option>" in page and "Unknown" not in page


@pytest.mark.parametrize(
    "wrong", [{"pattern": "a*b"}, {"running": "-1"}, {"running": ""}, {"starts": "1"}, {"per_seconds": "1"}], ids=str
)
def test_an_invalid_form_sets_no_rule(operator, wrong):
    answer = operator.post(reverse("instance:limit_set"), {**GIVEN, **wrong})
    assert answer.status_code == 200 and "errorlist" in answer.content.decode()
    assert not LimitRule.objects.exists()


def test_a_reader_may_not_change_limits(reader, limited):
    page = reader.get(reverse("instance:limits")).content.decode()
    assert "Set limit…" not in page and "Delete…" not in page
    assert reader.get(reverse("instance:limit_set")).status_code == 403
    assert reader.post(f"{reverse('instance:limit_delete')}?pattern=customer:*").status_code == 403


def test_a_key_on_hold_is_marked_and_counts_its_jobs(operator, submit):
    submit(limits=["stripe"], unmatched="wait")
    held, _ = holds.create_hold(HoldOf.LIMIT, "stripe", "operator:ann", "the service is down")
    page = operator.get(reverse("instance:limits")).content.decode()
    assert "On hold" in page and "the service is down" in page and "<small>on hold</small>" in page
    assert f"holds/{held.pk}/release/" in page


def test_quotas_of_a_namespace_are_set_by_the_form_and_shown_on_the_page(operator):
    form, quotas = reverse("instance:limit_set"), {"max_waiting": "1000", "submissions_per_minute": "60"}
    assert "Only a rule for" in operator.post(form, {**GIVEN, **quotas}).content.decode()
    assert not LimitRule.objects.exists()
    given = {**GIVEN, **quotas, "pattern": "namespace:red", "running": ""}
    assert operator.post(form, given).status_code == 302
    rule = LimitRule.objects.get()
    assert (rule.running, rule.max_waiting, rule.submissions_per_minute) == (None, 1000, 60)
    assert "1,000 waiting, 60 submissions a minute" in operator.get(reverse("instance:limits")).content.decode()
    assert 'value="1000"' in operator.get(f"{form}?pattern=namespace:red&namespace=default").content.decode()
