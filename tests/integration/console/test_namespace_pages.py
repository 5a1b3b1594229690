"""Users see and change only objects of the namespaces of their groups. With one namespace, pages do not mention it."""

import json

from django.contrib.auth.models import Permission

from jobs.models import Batch, Trigger, WorkerJob
from liveness.selectors.namespaces import KNOWN
from tests.integration.api.test_namespace_access import OF_ONE
from tests.support.executions import step
from tests.support.forms import fields_of
from tests.support.http import Caller

PAGES = {"server": "servers", "job": "jobs", "execution": "executions", "trigger": "triggers"}
ABOUT_INSTANCE = ["trends", "activity", "alerts", "recovery", "recovery/requeue-stale-claimed"]
NOTE = {"note": "a test"}


def pages_of(client, blue):
    """Return the status of each page of an object in the namespace "blue", and whether its list shows it."""
    for kind, address in blue.items():
        id = address.rpartition("/")[2]
        detail = client.get(f"/admin/instance/{PAGES[kind]}/{id}/")
        yield kind, detail.status_code, id in client.get(f"/admin/instance/{PAGES[kind]}/").content.decode()


def test_the_pages_show_only_the_namespaces_of_the_users_groups(blue, member):
    other, own, everywhere = member("red"), member("red", "blue"), member(sees_all=True)
    assert list(pages_of(other, blue)) == [(kind, 404, False) for kind in PAGES]
    assert list(pages_of(own, blue)) == [(kind, 200, True) for kind in PAGES]
    assert list(pages_of(everywhere, blue)) == [(kind, 200, True) for kind in PAGES]
    job = blue["job"].rpartition("/")[2]
    for page in ("log", "logs"):
        assert other.get(f"/admin/instance/jobs/{job}/{page}/").status_code == 404
        assert own.get(f"/admin/instance/jobs/{job}/{page}/").status_code == 200


def test_an_action_reaches_nothing_of_another_namespace(blue, member):
    job = blue["job"].rpartition("/")[2]
    form = {**NOTE, "seen": f"{job} PENDING"}
    other, own = member("red"), member("blue")
    other.post(f"/admin/instance/jobs/cancel/?pick={job}", form)
    preview = other.get("/admin/instance/jobs/cancel/?all=1").content.decode()
    assert "0 jobs" in preview
    other.post("/admin/instance/jobs/cancel/?all=1", {**NOTE, "until": "f" * 32, "seen": "9"})
    assert WorkerJob.objects.get(pk=job).state == "PENDING"
    own.post(f"/admin/instance/jobs/cancel/?pick={job}", form)
    assert WorkerJob.objects.get(pk=job).state == "CANCELLED"


def test_a_bulk_action_is_shown_to_the_user_who_started_it(blue, member, submit):
    job, own = blue["job"].rpartition("/")[2], member("blue")
    other = submit()["id"]
    form = {**NOTE, "seen": [f"{job} PENDING", f"{other} PENDING"]}
    own.post(f"/admin/instance/jobs/cancel/?pick={job}&pick={other}&pick={'0' * 32}", form)
    assert WorkerJob.objects.get(pk=other).state == "PENDING"
    own.post("/admin/instance/jobs/cancel/?all=1", {**NOTE, "until": "f" * 32, "seen": "9"})
    batch = Batch.objects.order_by("pk").last()
    assert own.get(f"/admin/instance/batches/{batch.pk}/").status_code == 200
    stranger = member("red")
    assert stranger.get(f"/admin/instance/batches/{batch.pk}/").status_code == 404
    assert str(batch.pk) not in stranger.get("/admin/instance/batches/").content.decode()


def test_pages_about_the_whole_control_plane_need_the_namespace_default(member):
    other, own = member("red"), member("default")
    for page in ABOUT_INSTANCE:
        assert other.get(f"/admin/instance/{page}/?older_than=1").status_code == 403, page
        assert own.get(f"/admin/instance/{page}/?older_than=1").status_code == 200, page
    assert other.get("/admin/liveness/serverevent/").status_code == 403
    first = other.get("/admin/instance/")
    assert (first.status_code, first["Location"]) == (302, "/admin/instance/servers/")
    tabs = other.get("/admin/instance/servers/").content.decode()
    assert "/admin/instance/jobs/" in tabs and "/admin/instance/trends/" not in tabs


def test_the_django_admin_shows_only_the_users_namespaces(blue, member):
    job = blue["job"].rpartition("/")[2]
    for client, status in ((member("red"), 302), (member("blue"), 200)):
        assert (job in client.get("/admin/jobs/workerjob/").content.decode()) == (status == 200)
        assert client.get(f"/admin/jobs/workerjob/{job}/change/").status_code == status


def test_the_api_applies_the_same_limits_to_the_users_session(blue, member):
    other, own = Caller(None, member("red")), Caller(None, member("blue", "green"))
    for kind in OF_ONE:
        assert other.get(blue[kind]).status_code == 404
        assert other.get(f"/{kind}s").json()["items"] == []
        assert own.get(blue[kind]).status_code == 200
        assert len(own.get(f"/{kind}s?namespace=blue").json()["items"]) > 0
    assert other.get("/jobs?namespace=blue").json()["code"] == "wrong_namespace"
    assert other.get("/instance").json()["code"] == "wrong_namespace"


def test_a_list_is_filtered_by_namespace_where_there_is_more_than_one(of, worker_of, member):
    client = member(sees_all=True)
    worker_of("default", name="plain")
    KNOWN.until = 0
    page = client.get("/admin/instance/servers/").content.decode()
    assert 'id="by-namespace"' not in page and "plain" in page
    worker_of("blue", name="blueish")
    KNOWN.until = 0
    page = client.get("/admin/instance/servers/").content.decode()
    assert 'id="by-namespace"' in page and "plain" in page and "blueish" in page
    page = client.get("/admin/instance/servers/?namespace=blue").content.decode()
    assert "blueish" in page and "plain" not in page


def test_a_token_of_a_namespace_brings_the_permission_for_it(of):
    names = Permission.objects.filter(codename__startswith="namespace:").values_list("codename", flat=True)
    of("default", "client")
    assert not names.exists()
    of("red", "client")
    of("red", "worker")
    assert sorted(names) == ["namespace:default", "namespace:red"]


TRIGGER = {"name": "of a form", "cron": "0 2 * * *", "execution": json.dumps({"name": "x", "steps": [step("a")]})}


def add_trigger(client, **fields):
    form = fields_of(client.get("/admin/instance/triggers/add/").content.decode())
    return form, client.post("/admin/instance/triggers/add/", {**form, **TRIGGER, **fields})


def test_a_trigger_is_created_in_one_of_the_users_namespaces(of, member):
    for name in ("default", "red", "blue", "green"):
        of(name, "client")
    KNOWN.until = 0
    client = member("red", "blue")
    form, refused = add_trigger(client, namespace="green")
    assert form["namespace"] == "blue", "as it is where nobody says"
    assert refused.status_code == 200 and "valid choice" in refused.content.decode()
    assert not Trigger.objects.exists()
    _, done = add_trigger(client, namespace="red")
    assert done.status_code == 302
    assert Trigger.objects.get().namespace == "red"
    page = client.get(f"{done['Location']}edit/").content.decode()
    assert "Namespace <strong>red</strong>" in page
    changed = client.post(f"{done['Location']}edit/", {**fields_of(page), "namespace": "blue", "priority": "3"})
    assert changed.status_code == 302
    assert Trigger.objects.values_list("namespace", "priority").get() == ("red", 3)


def test_a_user_with_all_namespaces_chooses_among_the_known_ones(of, member):
    of("red", "client")
    KNOWN.until = 0
    form, done = add_trigger(member(sees_all=True), namespace="red")
    assert (form["namespace"], done.status_code) == ("default", 302)
    assert Trigger.objects.get().namespace == "red"


def test_with_one_namespace_the_form_of_a_trigger_has_no_namespace_field(of, member):
    of("default", "client")
    KNOWN.until = 0
    form, done = add_trigger(member(sees_all=True), namespace="red")
    assert "namespace" not in form and done.status_code == 302
    assert Trigger.objects.get().namespace == "default"
    _, own = add_trigger(member("red"), name="of red")
    assert own.status_code == 302
    assert Trigger.objects.get(name="of red").namespace == "red"
