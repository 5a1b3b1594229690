"""Test that a token of a namespace has no access to other namespaces or to the whole control plane."""

import pytest

from jobs.api.sessions import operator_permissions
from jobs.models import Execution, Trigger, WorkerJob
from jobs.permissions import VIEWS
from liveness.models import Server
from tests.support.http import Caller
from tests.support.namespaces import SCRIPT
from tests.support.people import employ

NOTE = {"note": "a test"}
OF_ONE = {
    "server": ["", "/events", "!cordon", "!uncordon", "!drain", "!undrain", "!disconnect"],
    "job": ["", "/logs", "/placement", "!cancel", "!resubmit", "!fail"],
    "execution": ["", "/steps/a/logs", "/steps/_server/logs", "!cancel", "!rerun", "!restart"],
    "trigger": ["", "!evaluate"],
}
ABOUT_INSTANCE = [
    "/instance", "/instance/history", "/instance/history/actions", "/instance/history/tags", "/recovery/stale",
    "/events", "!maintenance/enter", "!maintenance/exit", "!brake/release", "!recovery/requeue-stale-claimed",
    "!recovery/fail-stale-running",
]  # fmt: skip


@pytest.fixture
def session(db):
    """Return a client that is signed in with all permissions."""
    caller = Caller(token=None)
    caller.client.force_login(employ(*VIEWS.values(), *operator_permissions()))
    return caller


def make(caller, address, call):
    return caller.post(f"{address}/{call[1:]}", NOTE) if call.startswith("!") else caller.get(f"{address}{call}")


def everything():
    return [list(model.objects.order_by("pk").values()) for model in (Server, WorkerJob, Execution, Trigger)]


@pytest.mark.parametrize("kind", OF_ONE)
def test_what_is_of_another_namespace_is_not_there(of, blue, session, kind):
    before, other = everything(), of("red", "operator")
    for call in OF_ONE[kind]:
        answer = make(other, blue[kind], call)
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found"), call
    assert everything() == before
    for caller in (of("blue", "operator"), session):
        assert make(caller, blue[kind], "").json()["namespace"] == "blue"
        assert all(make(caller, blue[kind], call).status_code in (200, 201, 409) for call in OF_ONE[kind])


def test_a_trigger_of_another_namespace_is_neither_changed_nor_deleted(of, blue):
    other, own = of("red", "operator"), of("blue", "operator")
    assert other.call("PATCH", blue["trigger"], {"enabled": False}).status_code == 404
    assert other.call("DELETE", blue["trigger"]).status_code == 404
    assert own.call("PATCH", blue["trigger"], {"enabled": False}).json()["namespace"] == "blue"
    assert own.call("DELETE", blue["trigger"]).status_code == 204


def test_a_list_is_of_the_namespace_of_the_token(of, blue, session):
    other, own = of("red", "operator"), of("blue", "viewer")
    for kind in OF_ONE:

        def listed(caller, query="", kind=kind):
            return {item["namespace"] for item in caller.get(f"/{kind}s{query}").json()["items"]}

        assert listed(other) == set()
        assert listed(own) == listed(session) == listed(session, "?namespace=blue") == {"blue"}
        assert listed(session, "?namespace=red") == set()


def test_to_wait_for_a_job_of_another_namespace_is_to_wait_for_none(of, blue):
    job = blue["job"].rpartition("/")[2]
    assert of("red", "viewer").get(f"/jobs/wait?id={job}").json()["unknown"] == [job]
    assert of("blue", "viewer").get(f"/jobs/wait?id={job}").json()["unknown"] == []


def test_what_is_about_the_whole_control_plane_is_for_the_namespace_default(of, session, db):
    other, callers = of("red", "operator"), (of("default", "operator"), session)
    for call in ABOUT_INSTANCE:
        refused = about_instance(other, call)
        assert (refused.status_code, refused.json()["code"]) == (403, "wrong_namespace"), call
        assert all(about_instance(caller, call).status_code != 403 for caller in callers), call


def test_metrics_are_about_all_namespaces(of):
    for namespace, status in (("red", 403), ("default", 200)):
        viewer = of(namespace, "viewer")
        answer = viewer.client.get("/metrics", headers={"Authorization": f"Bearer {viewer.token}"})
        assert answer.status_code == status


def about_instance(caller, call):
    return caller.post(f"/{call[1:]}", {}) if call.startswith("!") else caller.get(call)


def test_a_token_names_no_namespace_but_its_own(of):
    caller = of("red", "client")
    refused = caller.post("/jobs?namespace=blue", {"action": SCRIPT})
    assert (refused.status_code, refused.json()["code"]) == (403, "wrong_namespace")
    assert caller.get("/jobs?namespace=blue").json()["code"] == "wrong_namespace"
    assert caller.post("/jobs?namespace=red", {"action": SCRIPT}).json()["namespace"] == "red"


def test_a_signed_in_user_names_the_namespace_of_a_new_object(session):
    steps = [{"key": "a", "action": SCRIPT}]
    fields = {"name": "t", "interval_seconds": 60, "action": SCRIPT, "execution": {"name": "n", "steps": steps}}
    for address, body in {"/jobs": {"action": SCRIPT}, "/executions": {"name": "n", "steps": steps}}.items():
        assert session.post(address, body).json()["namespace"] == "default"
        assert session.post(f"{address}?namespace=red", body).json()["namespace"] == "red"
    assert session.post("/triggers?namespace=red", fields).json()["namespace"] == "red"
    assert session.post("/jobs?namespace=red", [{"action": SCRIPT}]).json()["items"][0]["namespace"] == "red"


def test_what_is_no_name_is_no_namespace(session):
    for name in ("", "a%0ab", "x" * 201):
        refused = session.post(f"/jobs?namespace={name}", {"action": SCRIPT})
        assert (refused.status_code, list(refused.json()["errors"])) == (400, ["namespace"]), name
    assert not WorkerJob.objects.exists()


def test_a_key_that_was_used_in_another_namespace_is_taken(session):
    execution = {"name": "n", "steps": [{"key": "a", "action": SCRIPT}], "key": "k"}
    for address, body in {"/jobs": {"action": SCRIPT, "key": "k"}, "/executions": execution}.items():
        assert session.post(f"{address}?namespace=red", body).status_code == 201
        assert session.post(f"{address}?namespace=red", body).status_code == 200
        assert session.post(address, body).json()["code"] == "key_conflict"
