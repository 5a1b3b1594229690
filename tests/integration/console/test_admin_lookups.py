"""The Django admin answers only the lookups of its list filters, and any other with a 400."""

import re
from html import unescape
from urllib.parse import quote, urlencode

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.contrib.contenttypes.models import ContentType
from django.test import Client
from django.urls import get_resolver, reverse

from controlplane.console.admin.lookups import LONGEST_SEARCH, OfferedLookups
from liveness.models import Instance
from tests.support.executions import SCRIPT, step
from tests.support.rounds import short_and_long

pytestmark = pytest.mark.django_db

assert get_resolver().url_patterns  # the addresses of our site register its users and groups
ADMINS = dict(admin.site._registry)
LABELS = [model._meta.label_lower for model in ADMINS if model is not Instance]
"""All but the entry that leads to the Instance pages: it has no list."""
SECRET = "S3cret-7q"
SUFFIXES = [
    "", "__exact", "__iexact", "__startswith", "__icontains", "__regex", "__gt", "__lte", "__in", "__range", "__isnull",
    "__year", "__has_key", "__contains", "__len", "__0", "__password__startswith", "__id__gt", "__unaccent", "__search",
]  # fmt: skip
ODD = ["", "\0", "x", "-1", "9" * 30, "(%", "\ud7ff", "a,b" * 900, "NaN", "{"]
# All lists share their code. So each list gets all values and all names, but each name only a third of the values.
each_list = pytest.mark.parametrize("label", LABELS)
every_third = pytest.mark.parametrize("step", short_and_long(3, 1))


def some_odd(label, number, step):
    """Return every third odd value, or all of them if `step` is 1. Another number begins with another value."""
    return ODD[(LABELS.index(label) + number) % step :: step]


@pytest.fixture
def root(db):
    client = Client(raise_request_exception=False)
    client.force_login(User.objects.create_superuser("root"))
    return client


@pytest.fixture
def rows(submit, begin, worker, api):
    """Create one row in each table, with a secret in every field that may have one."""
    submit(action={**SCRIPT, "env": {"DB_PASSWORD": SECRET}}, payload={"password": SECRET, "a": {"secret_value": "x"}})
    begin(step("a"), inputs={"password": SECRET})
    fields = {"name": "t", "cron": "0 2 * * *", "payload": {"password": SECRET}}
    api("operator").post("/triggers", {**fields, "execution": {"name": "n", "steps": [{"key": "a", "action": SCRIPT}]}})
    worker(tags=["script"]).claim(limit=1)
    User.objects.create_user("ann", password=SECRET)


def list_of(label, view="changelist", *args):
    app, model = label.split(".")
    return reverse(f"admin:{app}_{model}_{view}", args=args)


def model_of(label):
    return next(model for model in ADMINS if model._meta.label_lower == label)


def names_of(model):
    """Return the possible first parts of a lookup: each field, and each relation from another table."""
    names = {field.name for field in model._meta.get_fields()} | {"pk"}
    return names | {getattr(field, "attname", field.name) for field in model._meta.fields}


def links_of(page):
    """Return the parameters of the list filters on a page."""
    filters = page.partition('id="changelist-filter"')[2].partition("</nav>")[0]
    links = map(unescape, re.findall(r'href="\?([^"]+)"', filters))
    return [link for link in links if "=" in link and not link.startswith("_facets")]


def test_every_admin_of_our_site_has_the_same_guard():
    assert {model._meta.label for model in ADMINS} >= {"auth.User", "auth.Group", "jobs.WorkerJob", "liveness.ApiToken"}
    assert [label for label in LABELS if not isinstance(ADMINS[model_of(label)], OfferedLookups)] == []


@each_list
def test_a_lookup_on_any_field_is_refused_unless_a_filter_offers_it(root, label):
    guard, names = ADMINS[model_of(label)], names_of(model_of(label))
    offered = set(guard.offered_lookups(None))
    assert {
        name + suffix for name in names for suffix in SUFFIXES if guard.lookup_allowed(name + suffix, "1")
    } <= offered
    for number, name in enumerate(sorted(names)):
        lookup = f"{name}{SUFFIXES[3 + number % (len(SUFFIXES) - 3)]}"
        assert lookup in offered or root.get(list_of(label), {lookup: "1"}).status_code == 400, lookup
    assert {lookup.split("__")[0] for lookup in offered} <= names


@each_list
def test_every_link_of_a_list_filter_is_answered(root, rows, label):
    links = links_of(root.get(list_of(label)).content.decode())
    assert bool(links) is bool(ADMINS[model_of(label)].list_filter)
    for link in links:
        assert root.get(f"{list_of(label)}?{link}").status_code == 200, link
        assert link.partition("=")[0] in set(ADMINS[model_of(label)].offered_lookups(None))


@every_third
@each_list
def test_an_odd_value_in_the_address_of_a_list_is_no_fault(root, rows, label, step):
    offered = sorted(set(ADMINS[model_of(label)].offered_lookups(None)))
    names = [*offered, "q", "o", "p", "e", "all", "_facets", "_to_field", "_popup", "_source_model"]
    for number, name in enumerate(names):
        for value in some_odd(label, number, step):
            address = f"{list_of(label)}?{name}={quote(value)}"
            assert root.get(address).status_code in (200, 302, 400), address
    assert root.get(f"{list_of(label)}?q={'a+' * 5000}").status_code == (
        400 if ADMINS[model_of(label)].search_fields else 200
    )


@every_third
@each_list
def test_an_odd_id_in_the_address_of_a_row_is_no_fault(root, rows, label, step):
    type = ContentType.objects.get_for_model(model_of(label)).pk
    for number, view in enumerate(("change", "history", "delete", "r")):
        for value in filter(None, some_odd(label, number, step)):
            address = f"/admin/r/{type}/{quote(value)}/" if view == "r" else list_of(label, view, value)
            assert root.get(address).status_code in ((400, 404) if view == "r" else (302, 400, 403, 404)), address


@every_third
@each_list
def test_an_action_on_an_odd_id_is_no_fault(root, rows, label, step):
    for number, action in enumerate(("delete_selected", "evaluate_now", "cordon", "nothing")):
        for value in some_odd(label, number, step):
            sent = urlencode({"action": action, "_selected_action": value, "index": "0"})
            status = root.post(list_of(label), sent, "application/x-www-form-urlencoded").status_code
            assert status in (200, 302, 400, 403), (action, value)


def test_the_suggestions_of_a_form_take_no_odd_text(root, rows):
    for source, field in (("jobs.attempt", "job"), ("jobs.attempt", "server"), ("auth.user", "groups"), ("x.y", "z")):
        app, model = source.split(".")
        for value in [*ODD, "a " * LONGEST_SEARCH]:
            for name in ("term", "page", "field_name"):
                query = {"app_label": app, "model_name": model, "field_name": field, "term": "", name: value}
                assert root.get("/admin/autocomplete/", query).status_code in (200, 400, 403, 404), query


@pytest.mark.parametrize("label", ["jobs.trigger", "auth.user", "auth.group"])
def test_a_form_opened_with_odd_values_is_no_fault(root, label):
    for value in ODD:
        values = dict.fromkeys(names_of(model_of(label)), value)
        assert root.get(list_of(label, "add"), values).status_code in (200, 400), value


def test_a_viewer_finds_no_masked_value_by_any_list_of_the_admin(rows, reader):
    reader.raise_request_exception = False
    guesses = [
        f"{field}__{name}__startswith={SECRET[0]}"
        for field in ("payload", "inputs", "definition", "action__env", "execution")
        for name in ("password", "DB_PASSWORD", "a__secret_value")
    ]
    for label in ("jobs.workerjob", "jobs.execution", "jobs.trigger"):
        assert reader.get(list_of(label)).status_code == 200
        assert {reader.get(f"{list_of(label)}?{guess}").status_code for guess in guesses} == {400}
        assert "/change/" not in reader.get(f"{list_of(label)}?q={SECRET}").content.decode()


@pytest.mark.parametrize("page", ["jobs", "executions", "triggers", "quarantine"])
def test_no_filter_of_our_own_pages_finds_a_masked_value(rows, reader, page):
    path = f"/admin/instance/{page}/"
    assert reader.get(path).status_code == 200
    for query in ("q", "error", "code", "tag", "key", "name", "server", "who", "kind", "sort", "payload__password"):
        shown = reader.get(f"{path}?{query}={SECRET}").content.decode().replace(f'value="{SECRET}"', "")
        rows = re.findall(r"/admin/instance/(?:jobs|executions|triggers)/[0-9a-f-]{36}/", shown)
        unfiltered = re.findall(
            r"/admin/instance/(?:jobs|executions|triggers)/[0-9a-f-]{36}/", reader.get(path).content.decode()
        )
        assert rows in ([], unfiltered), query


def test_a_token_finds_no_masked_value_by_a_list_of_the_api(rows, api):
    viewer = api("viewer")
    for kind in ("jobs", "executions", "triggers", "servers", "batches"):
        fields = ("payload__password", "password", "payload", "q", "key", "tag", "name", "state", "sort", "order")
        for name in fields:
            answer = viewer.get(f"/{kind}?{name}={SECRET}")
            assert answer.status_code == 400 or answer.json()["items"] == [], (kind, name)
