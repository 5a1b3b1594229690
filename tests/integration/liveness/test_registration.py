"""Test registrations: a process registers once, with its own config."""

import uuid

import pytest

from liveness.models import Server
from tests.support.http import Caller
from tests.support.transitions import put

CONFIG = {
    "heartbeat_interval_seconds": 3,
    "timeout_seconds": 45,
    "termination_grace_period_seconds": 300,
    "worker_task_restart_strategy": "AFTER_TERMINATION_GRACE_PERIOD",
    "claimer_heartbeat_interval_seconds": 30,
    "runner_heartbeat_interval_seconds": 30,
}


@pytest.fixture
def register(api):
    """Register a process, and return the whole response. `by` is another registrar."""
    registrar = api("worker")

    def register(by=registrar, **fields):
        body = {"type": "WORKER", "name": "w", "instance_id": str(uuid.uuid4()), **fields}
        return by.post("/servers", body)

    return register


def test_the_response_has_the_servers_id_and_config(register):
    answer = register()
    body = answer.json()
    assert answer.status_code == 201
    assert set(body) == {"id", "token", "state", "fence_after_seconds", "config"}
    assert uuid.UUID(body["id"]).version == 7
    assert (body["state"], body["fence_after_seconds"], body["config"]) == ("CREATED", 336, CONFIG)


def test_the_description_of_a_process_is_shown(register, api):
    facts = {
        "type": "WORKER", "name": "w", "cluster": "berlin", "hostname": "h", "pid": 7, "version": "1.2",
        "tags": ["b", "a", "b"], "max_concurrent": 4,
    }  # fmt: skip
    server = register(**facts, capabilities={"python": ["3.11"]}).json()["id"]
    server_now = api("viewer").get(f"/servers/{server}").json()
    assert {key: server_now[key] for key in facts} == {**facts, "tags": ["a", "b"]}
    assert (server_now["state"], server_now["fresh"], server_now["cordoned"], server_now["last_heartbeat_at"]) == (
        "CREATED",
        False,
        False,
        None,
    )
    assert Server.objects.get(pk=server).capabilities == {"python": ["3.11"]}


def test_what_it_leaves_out_has_defaults(register):
    server = Server.objects.get(pk=register().json()["id"])
    assert (server.cluster, server.hostname, server.pid, server.version) == ("default", "", None, "")
    assert (server.tags, server.max_concurrent, server.capabilities) == ([], 1, {})


@pytest.mark.parametrize("type_", ["WORKER", "EXECUTOR", "SCHEDULER", "WEBSERVER", "INDEXER"])
def test_servers_of_every_type_register(register, type_):
    assert register(type=type_).status_code == 201


def test_the_same_instance_registers_once_and_gets_the_same_answer(register):
    instance = str(uuid.uuid4())
    first, second = register(instance_id=instance), register(instance_id=instance, name="renamed", tags=["x"])
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.json() == second.json()
    assert [(server.name, server.tags) for server in Server.objects.all()] == [("w", [])]


def test_an_instance_id_is_unique_per_registering_token_only(register, api):
    instance = str(uuid.uuid4())
    first, second = register(instance_id=instance), register(by=api("worker"), instance_id=instance)
    assert (first.status_code, second.status_code) == (201, 201)
    assert first.json()["id"] != second.json()["id"]


@pytest.mark.parametrize("state", ["TERMINATED_GRACEFULLY", "TERMINATED_FORCED", "NOT_RUNNING", "INACTIVE"])
def test_the_instance_of_an_ended_server_never_comes_back(register, state):
    instance = str(uuid.uuid4())
    server = put(Server.objects.get(pk=register(instance_id=instance).json()["id"]), state)
    answer = register(instance_id=instance)
    assert (answer.status_code, answer.json()["code"]) == (409, "server_not_running")
    server.refresh_from_db()
    assert server.state == state
    assert Server.objects.count() == 1


@pytest.mark.parametrize("state", ["RUNNING", "MAINTENANCE", "ERROR", "DISCONNECTED", "TERMINATING"])
def test_registering_again_returns_the_present_state_and_changes_none(register, state):
    instance = str(uuid.uuid4())
    put(Server.objects.get(pk=register(instance_id=instance).json()["id"]), state)
    answer = register(instance_id=instance)
    assert (answer.status_code, answer.json()["state"]) == (200, state)


@pytest.mark.parametrize(
    ("config", "fence"),
    [
        ({}, 336),
        ({"worker_task_restart_strategy": "AFTER_TERMINATION_GRACE_PERIOD"}, 336),
        ({"worker_task_restart_strategy": "IMMEDIATELY"}, 36),
        ({"worker_task_restart_strategy": "IMMEDIATELY", "timeout_seconds": 100}, 80),
        ({"worker_task_restart_strategy": "NEVER"}, None),
        ({"timeout_seconds": 100, "termination_grace_period_seconds": 0}, 80),
    ],
)
def test_the_fence_stands_a_fifth_of_the_timeout_before_the_jobs_move(register, config, fence):
    body = register(config=config).json()
    assert body["fence_after_seconds"] == (None if fence is None else pytest.approx(fence))
    assert body["config"] == {**CONFIG, **config}


@pytest.mark.parametrize(
    ("interval", "timeout", "named"),
    [(3, 23, ["3", "10", "23"]), (30, 60, ["30", "60"]), (20, 40, ["20", "40", "10"])],
    ids=["two checks", "two beats", "both"],
)
def test_a_timeout_at_the_limit_is_accepted_and_one_just_below_is_refused(register, interval, timeout, named):
    config = {"heartbeat_interval_seconds": interval, "timeout_seconds": timeout}
    assert register(config=config).status_code == 201
    answer = register(config={**config, "timeout_seconds": timeout - 0.1})
    assert answer.status_code == 400
    problem = str(answer.json()["errors"])
    assert "timeout_seconds" in problem
    assert all(f"{value} s" in problem for value in [*named, f"{timeout - 0.1:g}"])
    assert Server.objects.count() == 1


def test_half_a_config_is_judged_with_the_defaults_of_the_other_half(register):
    answer = register(config={"heartbeat_interval_seconds": 30})
    assert answer.status_code == 400
    assert "45 s" in str(answer.json()["errors"])


def test_a_change_of_the_settings_moves_no_registered_server(register, settings):
    instance = str(uuid.uuid4())
    register(instance_id=instance)
    settings.LIVENESS = {"TIMEOUT": 90, "WORKER_TASK_RESTART_STRATEGY": "NEVER"}
    assert register(instance_id=instance).json()["config"] == CONFIG
    new = register().json()["config"]
    assert (new["timeout_seconds"], new["worker_task_restart_strategy"]) == (90, "NEVER")


@pytest.mark.parametrize("role", ["client", "viewer", "operator"])
def test_only_a_token_of_role_worker_registers(register, api, role):
    answer = register(by=api(role))
    assert (answer.status_code, answer.json()["code"]) == (403, "wrong_role")
    assert Server.objects.count() == 0


def test_a_server_token_registers_nobody(register, worker):
    answer = register(by=Caller(worker().token))
    assert (answer.status_code, answer.json()["code"]) == (403, "wrong_role")
    assert Server.objects.count() == 1


@pytest.mark.parametrize(("role", "status"), [("viewer", 200), ("operator", 200), ("worker", 403), ("client", 403)])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("page", ["", "/events"])
def test_viewers_and_operators_see_servers(worker, api, role, status, page, method):
    assert api(role).call(method, f"/servers/{worker().id}{page}", b"").status_code == status


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("page", ["", "/events"])
def test_nobody_sees_servers_without_a_token(worker, page, method):
    assert Caller(None).call(method, f"/servers/{worker().id}{page}", b"").status_code == 401


def test_an_unknown_server_is_a_404(api):
    answer = api("viewer").get(f"/servers/{uuid.uuid4()}")
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


def test_the_events_of_a_server_come_in_order(worker, api):
    one = worker()
    one.beat(state="MAINTENANCE", reason="a new disk")
    events = api("viewer").get(f"/servers/{one.id}/events").json()["items"]
    assert [(event["from"], event["to"], event["actor"], event["reason"]) for event in events] == [
        ("CREATED", "RUNNING", "server", ""),
        ("RUNNING", "MAINTENANCE", "server", "a new disk"),
    ]
